//! Pinned and registered host memory.

use super::memory::leak;
use crate::cuda::cu;
use crate::harness::{Probe, family, line};
use crate::kit::{Answer, Words, alloc, context, name, names, stream, yes};

pub(crate) fn list() -> Vec<Probe> {
    family!["memory"; host_alloc, free_host_wrong, register, register_flags, register_file,
        register_read_only, registered_of_alloc, unregister_unknown, pointer_unknown, pointer_middle]
}

/// Memory of whole pages that the driver has not seen.
fn pages(count: usize) -> Result<usize, String> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            count * 4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        Err("mmap failed".into())
    } else {
        Ok(memory as usize)
    }
}

fn file_pages(protection: i32) -> Result<usize, String> {
    // SAFETY: a new file without a name, and a new mapping of it.
    let memory = unsafe {
        let file = libc::memfd_create(c"probe".as_ptr(), 0);
        libc::ftruncate(file, 16384);
        libc::mmap(
            std::ptr::null_mut(),
            16384,
            protection,
            libc::MAP_SHARED,
            file,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        Err("mmap failed".into())
    } else {
        Ok(memory as usize)
    }
}

fn host_alloc() -> Answer {
    context()?;
    for bytes in [0, 1, 64] {
        let mut pointer = 7;
        let code = cu().mem_host_alloc(&mut pointer, bytes, 3);
        let page = yes(pointer % 4096 == 0);
        line(
            format!("bytes_{bytes}"),
            format!("{}, null: {}, page: {page}", name(code), yes(pointer == 0)),
        );
    }
    line("most", name(cu().mem_host_alloc(&mut 0, usize::MAX, 3)));
    for flags in [0, 1, 2, 4, 7, 8, 16] {
        line(
            format!("flags_{flags}"),
            name(cu().mem_host_alloc(&mut 0, 64, flags)),
        );
    }
    let mut pointer = 0;
    let _ = cu().mem_host_alloc(&mut pointer, 64, 0);
    let mut device = 0;
    let code = cu().mem_host_get_device_pointer(&mut device, pointer, 0);
    line(
        "pointer_without_flag",
        format!("{}, same: {}", name(code), yes(device == pointer as u64)),
    );
    Ok(String::new())
}

fn free_host_wrong() -> Answer {
    context()?;
    let (words, device) = (Words::new()?, alloc(64)?);
    line("middle", name(cu().mem_free_host(words.host + 4096)));
    line("device", name(cu().mem_free_host(device as usize)));
    line("pageable", name(cu().mem_free_host(leak(4096))));
    line("as_device", name(cu().mem_free(words.at(0))));
    line("right", name(cu().mem_free_host(words.host)));
    line("twice", name(cu().mem_free_host(words.host)));
    Ok(String::new())
}

fn register() -> Answer {
    context()?;
    let memory = pages(8)?;
    line("nothing", name(cu().mem_host_register(memory, 0, 3)));
    line("null", name(cu().mem_host_register(0, 4096, 3)));
    line("unmapped", name(cu().mem_host_register(4096, 4096, 3)));
    line("unaligned", name(cu().mem_host_register(memory + 8, 64, 3)));
    let mut device = 0;
    let code = cu().mem_host_get_device_pointer(&mut device, memory + 8, 0);
    line(
        "unaligned_pointer",
        format!("{}, same: {}", name(code), yes(device == memory as u64 + 8)),
    );
    let code = cu().mem_host_get_device_pointer(&mut device, memory, 0);
    line("start_of_page_pointer", name(code));
    line(
        "same_page",
        name(cu().mem_host_register(memory + 1024, 64, 3)),
    );
    line("unregister", name(cu().mem_host_unregister(memory + 8)));
    line(
        "unregister_second",
        name(cu().mem_host_unregister(memory + 1024)),
    );
    line("aligned", name(cu().mem_host_register(memory, 8192, 3)));
    line("twice", name(cu().mem_host_register(memory, 8192, 3)));
    line("part", name(cu().mem_host_register(memory + 4096, 4096, 3)));
    line(
        "overlap",
        name(cu().mem_host_register(memory + 4096, 8192, 3)),
    );
    line(
        "unregister_middle",
        name(cu().mem_host_unregister(memory + 4096)),
    );
    line("unregister_start", name(cu().mem_host_unregister(memory)));
    line("unregister_twice", name(cu().mem_host_unregister(memory)));
    Ok(String::new())
}

fn register_flags() -> Answer {
    context()?;
    for flags in [0, 1, 2, 3, 4, 8, 16, 32, 64] {
        let memory = pages(1)?;
        let code = cu().mem_host_register(memory, 4096, flags);
        let pointer = cu().mem_host_get_device_pointer(&mut 0, memory, 0);
        line(flags, names(&[code, pointer]));
    }
    Ok(String::new())
}

fn register_file() -> Answer {
    context()?;
    let (memory, stream) = (file_pages(libc::PROT_READ | libc::PROT_WRITE)?, stream()?);
    line("register", name(cu().mem_host_register(memory, 16384, 3)));
    let mut device = 0;
    let code = cu().mem_host_get_device_pointer(&mut device, memory, 0);
    line(
        "pointer",
        format!("{}, same: {}", name(code), yes(device == memory as u64)),
    );
    let code = cu().stream_write_value64(stream, device + 8, 9, 0);
    line("write", names(&[code, cu().stream_synchronize(stream)]));
    // SAFETY: inside the mapping, aligned, and the device has finished.
    line("value", unsafe {
        (memory as *const u64).add(1).read_volatile()
    });
    line("unregister", name(cu().mem_host_unregister(memory)));
    line(
        "write_after",
        name(cu().stream_write_value64(stream, device + 8, 9, 0)),
    );
    Ok(String::new())
}

fn register_read_only() -> Answer {
    context()?;
    let memory = file_pages(libc::PROT_READ)?;
    line("plain", name(cu().mem_host_register(memory, 16384, 3)));
    line("read_only", name(cu().mem_host_register(memory, 16384, 11)));
    Ok(String::new())
}

fn registered_of_alloc() -> Answer {
    context()?;
    let words = Words::new()?;
    line(
        "register",
        name(cu().mem_host_register(words.host, 4096, 3)),
    );
    line("unregister", name(cu().mem_host_unregister(words.host)));
    let memory = pages(1)?;
    let _ = cu().mem_host_register(memory, 4096, 3);
    line("free", name(cu().mem_free_host(memory)));
    Ok(String::new())
}

fn unregister_unknown() -> Answer {
    context()?;
    Ok(names(&[
        cu().mem_host_unregister(pages(1)?),
        cu().mem_host_unregister(0),
    ]))
}

fn pointer_unknown() -> Answer {
    context()?;
    let mut pointer = 7;
    let codes = [
        cu().mem_host_get_device_pointer(&mut pointer, pages(1)?, 0),
        cu().mem_host_get_device_pointer(&mut pointer, 0, 0),
    ];
    Ok(format!(
        "{}, result {}",
        names(&codes),
        if pointer == 7 { "kept" } else { "changed" }
    ))
}

fn pointer_middle() -> Answer {
    context()?;
    let (words, mut pointer) = (Words::new()?, 0);
    let code = cu().mem_host_get_device_pointer(&mut pointer, words.host + 4096, 0);
    line(
        "middle",
        format!(
            "{}, same: {}",
            name(code),
            yes(pointer == words.host as u64 + 4096)
        ),
    );
    let code = cu().mem_host_get_device_pointer(&mut pointer, words.host, 1);
    line("flags_1", name(code));
    Ok(String::new())
}
