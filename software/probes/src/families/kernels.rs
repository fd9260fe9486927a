//! Modules, functions and launches that are refused.

use crate::cuda::cu;
use crate::harness::{Probe, family, line};
use crate::kit::{
    Answer, Words, context, kernel, kernel_of, launch, launch_as, module, name, names, pause,
    stream,
};

pub(crate) fn list() -> Vec<Probe> {
    family!["kernels"; bad_text, newer_target, newer_version, empty, function_unknown, function_empty,
        shapes, params_null, params_extra, shared_too_much, module_unload_used, module_unload_twice,
        function_after_unload, nonresident, launch_null_streams, entry_without_visible, load_while_parked]
}

fn load(text: &str) -> u32 {
    let text = format!("{text}\0");
    cu().module_load_data(&mut 0, text.as_ptr() as usize)
}

fn bad_text() -> Answer {
    context()?;
    const HEAD: &str = ".version 6.4\n.target sm_60\n.address_size 64\n";
    line("words", name(load("this is no PTX")));
    line("head_only", name(load(HEAD)));
    line(
        "no_version",
        name(load(".target sm_60\n.address_size 64\n")),
    );
    line("no_target", name(load(".version 6.4\n.address_size 64\n")));
    line(
        "unknown_opcode",
        name(load(&format!("{HEAD}.visible .entry a() {{ jump; ret; }}"))),
    );
    line(
        "unknown_register",
        name(load(&format!(
            "{HEAD}.visible .entry a() {{ mov.u64 %x, 1; ret; }}"
        ))),
    );
    line(
        "no_end",
        name(load(&format!("{HEAD}.visible .entry a() {{ ret;"))),
    );
    line(
        "no_ret",
        name(load(&format!("{HEAD}.visible .entry a() {{ }}"))),
    );
    line(
        "twice",
        name(load(&format!(
            "{HEAD}.visible .entry a() {{ ret; }} .visible .entry a() {{ ret; }}"
        ))),
    );
    line(
        "after",
        name(load(&format!("{HEAD}.visible .entry a() {{ ret; }}"))),
    );
    Ok(String::new())
}

fn newer_target() -> Answer {
    context()?;
    for target in [
        "sm_20", "sm_30", "sm_50", "sm_80", "sm_90", "sm_100", "sm_999",
    ] {
        let text = format!(
            ".version 6.4\n.target {target}\n.address_size 64\n.visible .entry a() {{ ret; }}"
        );
        line(format!("version_6_4_{target}"), name(load(&text)));
    }
    for target in ["sm_80", "sm_90", "sm_100", "sm_120"] {
        let text = format!(
            ".version 8.7\n.target {target}\n.address_size 64\n.visible .entry a() {{ ret; }}"
        );
        line(format!("version_8_7_{target}"), name(load(&text)));
    }
    Ok(String::new())
}

fn newer_version() -> Answer {
    context()?;
    for version in ["3.0", "6.4", "8.0", "9.0", "9.9", "42.0"] {
        let text = format!(
            ".version {version}\n.target sm_60\n.address_size 64\n.visible .entry a() {{ ret; }}"
        );
        line(version, name(load(&text)));
    }
    Ok(String::new())
}

fn empty() -> Answer {
    context()?;
    line("empty", name(load("")));
    line(
        "zeros",
        name(cu().module_load_data(&mut 0, [0_u64; 512].as_ptr() as usize)),
    );
    Ok(String::new())
}

fn function_unknown() -> Answer {
    context()?;
    let (module, mut function) = (module()?, 7);
    let code = cu().module_get_function(&mut function, module, c"unknown".as_ptr() as usize);
    Ok(format!(
        "{}, result {}",
        name(code),
        if function == 7 { "kept" } else { "changed" }
    ))
}

fn function_empty() -> Answer {
    context()?;
    let module = module()?;
    line(
        "empty",
        name(cu().module_get_function(&mut 0, module, c"".as_ptr() as usize)),
    );
    line("null", name(cu().module_get_function(&mut 0, module, 0)));
    let (mut first, mut second) = (0, 0);
    let codes = [
        cu().module_get_function(&mut first, module, c"nop".as_ptr() as usize),
        cu().module_get_function(&mut second, module, c"nop".as_ptr() as usize),
    ];
    line(
        "twice",
        format!(
            "{}, same: {}",
            names(&codes),
            crate::kit::yes(first == second)
        ),
    );
    Ok(String::new())
}

fn shapes() -> Answer {
    context()?;
    let (nop, stream) = (kernel(c"nop")?, stream()?);
    for block in [0, 1, 1024, 1025, u32::MAX] {
        line(
            format!("block_{block}"),
            name(launch_as(nop, 1, block, stream, &[])),
        );
    }
    for grid in [0, 1, 65536, 0x7fff_ffff, 0x8000_0000] {
        // Too many blocks would take long.
        if grid <= 65536 || grid > 0x7fff_ffff {
            line(
                format!("grid_{grid}"),
                name(launch_as(nop, grid, 1, stream, &[])),
            );
        }
    }
    let shape = |grid: [u32; 3], block: [u32; 3]| {
        let ([x, y, z], [a, b, c]) = (grid, block);
        name(cu().launch_kernel(nop, x, y, z, a, b, c, 0, stream, 0, 0))
    };
    line("grid_y_0", shape([1, 0, 1], [1, 1, 1]));
    line("grid_y_65536", shape([1, 65536, 1], [1, 1, 1]));
    line("grid_z_65536", shape([1, 1, 65536], [1, 1, 1]));
    line("block_z_65", shape([1, 1, 1], [1, 1, 65]));
    line("block_z_64", shape([1, 1, 1], [1, 1, 64]));
    line("block_33x32", shape([1, 1, 1], [33, 32, 1]));
    line("block_y_0", shape([1, 1, 1], [1, 0, 1]));
    line("synchronize", name(cu().stream_synchronize(stream)));
    Ok(String::new())
}

fn params_null() -> Answer {
    context()?;
    let (put, stream) = (kernel(c"put")?, stream()?);
    Ok(names(&[
        cu().launch_kernel(put, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0),
        cu().stream_synchronize(stream),
    ]))
}

fn params_extra() -> Answer {
    context()?;
    let (nop, put, stream, words) = (kernel(c"nop")?, kernel(c"put")?, stream()?, Words::new()?);
    line(
        "more",
        names(&[
            launch(nop, stream, &[1, 2]),
            cu().stream_synchronize(stream),
        ]),
    );
    // CU_LAUNCH_PARAM_BUFFER_POINTER, the buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, the size, the end.
    let (buffer, mut size) = ([words.at(0), 9], 16_usize);
    let extra = [1, buffer.as_ptr() as usize, 2, &raw mut size as usize, 0];
    let code = cu().launch_kernel(put, 1, 1, 1, 1, 1, 1, 0, stream, 0, extra.as_ptr() as usize);
    let codes = [code, cu().stream_synchronize(stream)];
    line("buffer", format!("{} {}", names(&codes), words.load(0)));
    let params = [&raw const buffer[0] as usize, &raw const buffer[1] as usize];
    let code = cu().launch_kernel(
        put,
        1,
        1,
        1,
        1,
        1,
        1,
        0,
        stream,
        params.as_ptr() as usize,
        extra.as_ptr() as usize,
    );
    line("both", name(code));
    size = 8;
    let code = cu().launch_kernel(put, 1, 1, 1, 1, 1, 1, 0, stream, 0, extra.as_ptr() as usize);
    line("buffer_too_small", name(code));
    let _ = size;
    Ok(String::new())
}

fn shared_too_much() -> Answer {
    context()?;
    let (nop, stream) = (kernel(c"nop")?, stream()?);
    let codes = [48 << 10, (48 << 10) + 1, 1 << 20]
        .map(|bytes| cu().launch_kernel(nop, 1, 1, 1, 1, 1, 1, bytes, stream, 0, 0));
    Ok(names(&codes))
}

fn module_unload_used() -> Answer {
    context()?;
    let (module, stream, words) = (module()?, stream()?, Words::new()?);
    let spin = kernel_of(module, c"spin")?;
    let code = launch(spin, stream, &[words.at(0)]);
    let opener = std::thread::spawn(move || {
        pause(1000);
        words.store(0, 1);
    });
    let unload = cu().module_unload(module);
    let early = words.load(0) == 0;
    let _ = opener.join();
    let codes = names(&[code, unload, cu().stream_synchronize(stream)]);
    Ok(format!(
        "{codes}, returns while the kernel runs: {}",
        crate::kit::yes(early)
    ))
}

fn module_unload_twice() -> Answer {
    context()?;
    let module = module()?;
    Ok(names(&[
        cu().module_unload(module),
        cu().module_unload(module),
    ]))
}

fn function_after_unload() -> Answer {
    context()?;
    let (module, stream) = (module()?, stream()?);
    let nop = kernel_of(module, c"nop")?;
    Ok(names(&[
        cu().module_unload(module),
        launch(nop, stream, &[]),
    ]))
}

/// A function of another context's module.
fn nonresident() -> Answer {
    context()?;
    let nop = kernel(c"nop")?;
    crate::kit::another_context()?;
    let stream = stream()?;
    Ok(names(&[
        launch(nop, stream, &[]),
        launch(nop, 0, &[]),
        cu().ctx_synchronize(),
    ]))
}

fn launch_null_streams() -> Answer {
    context()?;
    let nop = kernel(c"nop")?;
    let codes = [0, 1, 2].map(|stream| launch(nop, stream, &[]));
    Ok(names(&[
        codes[0],
        codes[1],
        codes[2],
        cu().ctx_synchronize(),
    ]))
}

fn entry_without_visible() -> Answer {
    context()?;
    let text =
        ".version 6.4\n.target sm_60\n.address_size 64\n.entry a() { ret; }\n.func b() { ret; }\0";
    let (mut module, mut function) = (0, 0);
    line(
        "load",
        name(cu().module_load_data(&mut module, text.as_ptr() as usize)),
    );
    line(
        "entry",
        name(cu().module_get_function(&mut function, module, c"a".as_ptr() as usize)),
    );
    line(
        "func",
        name(cu().module_get_function(&mut function, module, c"b".as_ptr() as usize)),
    );
    Ok(String::new())
}

/// Whether loading returns while a kernel spins.
fn load_while_parked() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    crate::kit::spin(stream, words, 0)?;
    let opener = std::thread::spawn(move || {
        pause(2000);
        words.store(0, 1);
    });
    let module = module()?;
    line("module_returns", crate::kit::yes(words.load(0) == 0));
    let nop = kernel_of(module, c"nop")?;
    line("function_returns", crate::kit::yes(words.load(0) == 0));
    let code = launch(nop, crate::kit::stream()?, &[]);
    line(
        "launch_returns",
        format!("{} {}", name(code), crate::kit::yes(words.load(0) == 0)),
    );
    let _ = opener.join();
    Ok(String::new())
}
