//! Version, devices, attributes, names of errors.

use crate::cuda::{cu, text};
use crate::harness::{Probe, family, line};
use crate::kit::{Answer, check, context, name, names, yes};

pub(crate) fn list() -> Vec<Probe> {
    family!["version"; before_init, init, driver, devices, device_name, uuid, luid, attributes,
        attributes_unknown, error_names, error_unknown, priorities]
}

fn before_init() -> Answer {
    let (mut number, mut handle) = (0, 0);
    line(
        "driver_get_version",
        name(cu().driver_get_version(&mut number)),
    );
    line("get_error_name", name(cu().get_error_name(1, &mut handle)));
    line("device_get_count", name(cu().device_get_count(&mut number)));
    line("device_get", name(cu().device_get(&mut number, 0)));
    line("ctx_get_current", name(cu().ctx_get_current(&mut handle)));
    line("ctx_set_current", name(cu().ctx_set_current(0)));
    line("primary_retain", name(cu().primary_retain(&mut handle, 0)));
    line("event_create", name(cu().event_create(&mut handle, 0)));
    line("mem_alloc", name(cu().mem_alloc(&mut 0, 8)));
    line("thread_exchange", name(cu().thread_exchange(&mut 0)));
    Ok(String::new())
}

fn init() -> Answer {
    Ok(names(&[
        cu().init(1),
        cu().init(0),
        cu().init(0),
        cu().init(u32::MAX),
    ]))
}

fn driver() -> Answer {
    let mut version = 0;
    let code = cu().driver_get_version(&mut version);
    Ok(format!("{} {version}", name(code)))
}

fn devices() -> Answer {
    check("cuInit", cu().init(0))?;
    let mut count = 0;
    line("count", name(cu().device_get_count(&mut count)));
    for ordinal in [0, -1, 1000] {
        let mut device = -7;
        let code = cu().device_get(&mut device, ordinal);
        line(format!("get_{ordinal}"), format!("{} {device}", name(code)));
    }
    line("get_count", name(cu().device_get(&mut 0, count)));
    let (mut value, mut bytes) = (0, [0; 16]);
    for device in [-1, 1000] {
        line(
            format!("attribute_of_{device}"),
            name(cu().device_get_attribute(&mut value, 75, device)),
        );
        line(
            format!("uuid_of_{device}"),
            name(cu().device_get_uuid(&mut bytes, device)),
        );
        line(
            format!("name_of_{device}"),
            name(cu().device_get_name(&mut [0; 256], 256, device)),
        );
        line(
            format!("retain_of_{device}"),
            name(cu().primary_retain(&mut 0, device)),
        );
    }
    Ok(String::new())
}

fn device_name() -> Answer {
    check("cuInit", cu().init(0))?;
    for length in [256, 4, 1, 0, -1] {
        let mut text = [b'#'; 256];
        let code = cu().device_get_name(&mut text, length, 0);
        let end = text.iter().position(|byte| *byte == 0);
        let shown = match end {
            Some(end) => String::from_utf8_lossy(&text[..end]).into_owned(),
            None => "(no end)".into(),
        };
        line(
            format!("length_{length}"),
            format!("{} {shown}", name(code)),
        );
    }
    Ok(String::new())
}

fn uuid() -> Answer {
    check("cuInit", cu().init(0))?;
    let (mut old, mut new) = ([0; 16], [0; 16]);
    let codes = [
        cu().device_get_uuid_v1(&mut old, 0),
        cu().device_get_uuid(&mut new, 0),
    ];
    Ok(format!("{}, same: {}", names(&codes), yes(old == new)))
}

fn luid() -> Answer {
    check("cuInit", cu().init(0))?;
    let (mut luid, mut mask) = ([0; 8], 0);
    let code = cu().device_get_luid(&mut luid, &mut mask, 0);
    Ok(format!(
        "{}, zero: {}, mask: {mask}",
        name(code),
        yes(luid == [0; 8])
    ))
}

fn attributes() -> Answer {
    check("cuInit", cu().init(0))?;
    // The ids of the bus, the device and the domain differ between machines.
    for attribute in (1..=140).filter(|attribute| ![33, 34, 50].contains(attribute)) {
        let mut value = -7;
        let code = cu().device_get_attribute(&mut value, attribute, 0);
        line(attribute, format!("{} {value}", name(code)));
    }
    Ok(String::new())
}

fn attributes_unknown() -> Answer {
    check("cuInit", cu().init(0))?;
    for attribute in (141..=160).chain([0, 1000, u32::MAX]) {
        let mut value = -7;
        let code = cu().device_get_attribute(&mut value, attribute, 0);
        line(attribute, format!("{} {value}", name(code)));
    }
    Ok(String::new())
}

fn error_names() -> Answer {
    for code in 0..=1000 {
        let (mut word, mut words) = (0, 0);
        if cu().get_error_name(code, &mut word) == 0 {
            let described = cu().get_error_string(code, &mut words);
            line(
                code,
                format!("{} {} {}", text(word), name(described), text(words)),
            );
        }
    }
    Ok(String::new())
}

fn error_unknown() -> Answer {
    for code in [9999, u32::MAX] {
        let (mut word, mut words) = (7, 7);
        let codes = [
            cu().get_error_name(code, &mut word),
            cu().get_error_string(code, &mut words),
        ];
        line(
            code,
            format!(
                "{}, null: {} {}",
                names(&codes),
                yes(word == 0),
                yes(words == 0)
            ),
        );
    }
    Ok(String::new())
}

fn priorities() -> Answer {
    context()?;
    let (mut least, mut greatest) = (-99, -99);
    let code = cu().ctx_priority_range(&mut least, &mut greatest);
    line("range", format!("{} {least} {greatest}", name(code)));
    let priorities = [
        ("above_greatest", greatest - 1),
        ("greatest", greatest),
        ("0", 0),
        ("least", least),
        ("below_least", least + 1),
    ];
    for (which, priority) in priorities {
        let (mut stream, mut is) = (0, -99);
        let code = cu().stream_create_with_priority(&mut stream, 1, priority);
        if code == 0 {
            let _ = cu().stream_get_priority(stream, &mut is);
        }
        line(format!("ask_{which}"), format!("{} {is}", name(code)));
    }
    for flags in [0, 1, 2, 3, 4, u32::MAX] {
        let (mut stream, mut is) = (0, 99);
        let code = cu().stream_create(&mut stream, flags);
        if code == 0 {
            let _ = cu().stream_get_flags(stream, &mut is);
        }
        line(
            format!("stream_flags_{flags}"),
            format!("{} {is}", name(code)),
        );
    }
    Ok(String::new())
}
