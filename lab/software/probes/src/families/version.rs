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
        ("least", least),
        ("below_least", least + 1),
    ];
    for (which, priority) in priorities {
        let (mut stream, mut is) = (0, -99);
        let code = create_with_priority(&mut stream, 1, priority);
        check(stream_get_priority(stream, &mut is));
        line(format!("ask_{which}"), format!("{code} {is}"));
    }
})];

const BARE: Questions = &[
    ("before_init", || {
        let (mut number, mut handle) = (0, 0);
        line("driver_get_version", driver_get_version(&mut number));
        line("get_error_name", get_error_name(1, &mut handle));
        line("device_get_count", device_get_count(&mut number));
        line("device_get", device_get(&mut number, 0));
        line("ctx_set_current", ctx_set_current(0));
        line("primary_retain", primary_retain(&mut handle, 0));
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
        let (mut count, mut value) = (0, 0);
        line("count", device_get_count(&mut count));
        for ordinal in [0, -1] {
            let mut device = -7;
            let code = device_get(&mut device, ordinal);
            line(format!("get_{ordinal}"), format!("{code} {device}"));
        }
        line("get_count", device_get(&mut 0, count));
        line("attribute_of_-1", device_get_attribute(&mut value, 75, -1));
        line("uuid_of_-1", device_get_uuid(&mut [0; 16], -1));
        line("name_of_-1", device_get_name(&mut [0; 256], 256, -1));
        line("retain_of_-1", primary_retain(&mut 0, -1));
    }),
    ("uuid", || {
        check(init(0));
        let (mut whole, mut own) = ([0; 16], [0; 16]);
        let code = device_get_uuid_v1(&mut whole, 0);
        let codes = [code, device_get_uuid(&mut own, 0)];
        answer((codes, that("same", whole == own)));
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
    ("error_names", || {
        for code in 0..=1000 {
            let (mut word, mut words) = (0, 0);
            if get_error_name(code, &mut word) == 0 {
                let described = get_error_string(code, &mut words);
                line(code, format!("{} {described} {}", text(word), text(words)));
            }
        }
    }),
];
