//! Version, devices, attributes, names of errors.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("version", QUESTIONS);
    all.bare("version", BARE);
}

const QUESTIONS: Questions = &[("priorities", || {
    let (mut least, mut greatest) = (-99, -99);
    let code = ctx_priority_range(&mut least, &mut greatest);
    line("range", format!("{code} {least} {greatest}"));
    let priorities = [
        ("above_greatest", greatest - 1),
        ("greatest", greatest),
        ("0", 0),
        ("least", least),
        ("below_least", least + 1),
    ];
    for (which, priority) in priorities {
        let (mut stream, mut is) = (0, -99);
        let code = create_with_priority(&mut stream, 1, priority);
        if code == 0 {
            stream_get_priority(stream, &mut is);
        }
        line(format!("ask_{which}"), format!("{code} {is}"));
    }
    for flags in [0, 1, 2, 3, 4, u32::MAX] {
        let (mut stream, mut is) = (0, 99);
        let code = stream_create(&mut stream, flags);
        if code == 0 {
            stream_get_flags(stream, &mut is);
        }
        line(format!("stream_flags_{flags}"), format!("{code} {is}"));
    }
})];

const BARE: Questions = &[
    ("before_init", || {
        let (mut number, mut handle) = (0, 0);
        line("driver_get_version", driver_get_version(&mut number));
        line("get_error_name", get_error_name(1, &mut handle));
        line("device_get_count", device_get_count(&mut number));
        line("device_get", device_get(&mut number, 0));
        line("ctx_get_current", ctx_get_current(&mut handle));
        line("ctx_set_current", ctx_set_current(0));
        line("primary_retain", primary_retain(&mut handle, 0));
        line("event_create", event_create(&mut handle, 0));
        line("mem_alloc", mem_alloc(&mut 0, 8));
        line("thread_exchange", thread_exchange(&mut 0));
    }),
    ("init", || {
        answer([init(1), init(0), init(0), init(u32::MAX)])
    }),
    ("driver", || {
        let mut version = 0;
        let code = driver_get_version(&mut version);
        answer(format!("{code} {version}"));
    }),
    ("devices", || {
        check(init(0));
        let mut count = 0;
        line("count", device_get_count(&mut count));
        for ordinal in [0, -1, 1000] {
            let mut device = -7;
            let code = device_get(&mut device, ordinal);
            line(format!("get_{ordinal}"), format!("{code} {device}"));
        }
        line("get_count", device_get(&mut 0, count));
        let (mut value, mut bytes) = (0, [0; 16]);
        for device in [-1, 1000] {
            line(
                format!("attribute_of_{device}"),
                device_get_attribute(&mut value, 75, device),
            );
            line(
                format!("uuid_of_{device}"),
                device_get_uuid(&mut bytes, device),
            );
            line(
                format!("name_of_{device}"),
                device_get_name(&mut [0; 256], 256, device),
            );
            line(
                format!("retain_of_{device}"),
                primary_retain(&mut 0, device),
            );
        }
    }),
    ("device_name", || {
        check(init(0));
        for length in [256, 4, 1, 0, -1] {
            let mut text = [b'#'; 256];
            let code = device_get_name(&mut text, length, 0);
            let end = text.iter().position(|byte| *byte == 0);
            let shown = match end {
                Some(end) => String::from_utf8_lossy(&text[..end]).into_owned(),
                None => "(no end)".into(),
            };
            line(format!("length_{length}"), format!("{code} {shown}"));
        }
    }),
    ("uuid", || {
        check(init(0));
        let (mut old, mut new) = ([0; 16], [0; 16]);
        let codes = [
            device_get_uuid_v1(&mut old, 0),
            device_get_uuid(&mut new, 0),
        ];
        answer((codes, that("same", old == new)));
    }),
    ("luid", || {
        check(init(0));
        let (mut luid, mut mask) = ([0; 8], 0);
        let code = device_get_luid(&mut luid, &mut mask, 0);
        answer(format!(
            "{code}, zero: {}, mask: {mask}",
            yes(luid == [0; 8])
        ));
    }),
    ("attributes", || {
        check(init(0));
        // The ids of the bus, the device and the domain differ between machines.
        for attribute in (1..=140).filter(|attribute| ![33, 34, 50].contains(attribute)) {
            let mut value = -7;
            let code = device_get_attribute(&mut value, attribute, 0);
            line(attribute, format!("{code} {value}"));
        }
    }),
    ("attributes_unknown", || {
        check(init(0));
        for attribute in (141..=160).chain([0, 1000, u32::MAX]) {
            let mut value = -7;
            let code = device_get_attribute(&mut value, attribute, 0);
            line(attribute, format!("{code} {value}"));
        }
    }),
    ("error_names", || {
        for code in 0..=1000 {
            let (mut word, mut words) = (0, 0);
            if get_error_name(code, &mut word) == 0 {
                let described = get_error_string(code, &mut words);
                line(code, format!("{} {described} {}", text(word), text(words)));
            }
        }
    }),
    ("error_unknown", || {
        for code in [9999, u32::MAX] {
            let (mut word, mut words) = (7, 7);
            let codes = [
                get_error_name(code, &mut word),
                get_error_string(code, &mut words),
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
    }),
];
