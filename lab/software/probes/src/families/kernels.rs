//! Modules, functions and launches that are refused.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("kernels", QUESTIONS);
}

fn load(text: &str) -> Code {
    let text = format!("{text}\0");
    module_load_data(&mut 0, text.as_ptr() as usize)
}

const QUESTIONS: Questions = &[
    ("bad_text", || {
        const HEAD: &str = ".version 6.4\n.target sm_60\n.address_size 64\n";
        line("words", load("this is no PTX"));
        line("head_only", load(HEAD));
        line("no_version", load(".target sm_60\n.address_size 64\n"));
        line("no_target", load(".version 6.4\n.address_size 64\n"));
        line(
            "unknown_opcode",
            load(&format!("{HEAD}.visible .entry a() {{ jump; ret; }}")),
        );
        line(
            "unknown_register",
            load(&format!(
                "{HEAD}.visible .entry a() {{ mov.u64 %x, 1; ret; }}"
            )),
        );
        line(
            "no_end",
            load(&format!("{HEAD}.visible .entry a() {{ ret;")),
        );
        line("no_ret", load(&format!("{HEAD}.visible .entry a() {{ }}")));
        line(
            "twice",
            load(&format!(
                "{HEAD}.visible .entry a() {{ ret; }} .visible .entry a() {{ ret; }}"
            )),
        );
        line(
            "after",
            load(&format!("{HEAD}.visible .entry a() {{ ret; }}")),
        );
    }),
    ("newer_target", || {
        for target in [
            "sm_20", "sm_30", "sm_50", "sm_80", "sm_90", "sm_100", "sm_999",
        ] {
            let text = format!(
                ".version 6.4\n.target {target}\n.address_size 64\n.visible .entry a() {{ ret; }}"
            );
            line(format!("version_6_4_{target}"), load(&text));
        }
        for target in ["sm_80", "sm_90", "sm_100", "sm_120"] {
            let text = format!(
                ".version 8.7\n.target {target}\n.address_size 64\n.visible .entry a() {{ ret; }}"
            );
            line(format!("version_8_7_{target}"), load(&text));
        }
    }),
    ("newer_version", || {
        for version in ["3.0", "6.4", "8.0", "9.0", "9.9", "42.0"] {
            let text = format!(
                ".version {version}\n.target sm_60\n.address_size 64\n.visible .entry a() {{ ret; }}"
            );
            line(version, load(&text));
        }
    }),
    ("empty", || {
        line("empty", load(""));
        line(
            "zeros",
            module_load_data(&mut 0, [0_u64; 512].as_ptr() as usize),
        );
    }),
    ("function_unknown", || {
        let (module, mut function) = (module(), 7);
        let code = get_function(&mut function, module, c"unknown".as_ptr() as usize);
        answer(format!(
            "{code}, result {}",
            if function == 7 { "kept" } else { "changed" }
        ));
    }),
    ("function_empty", || {
        let module = module();
        line("empty", function_of(module, c""));
        line("null", get_function(&mut 0, module, 0));
        let (mut first, mut second) = (0, 0);
        let codes = [
            get_function(&mut first, module, c"nop".as_ptr() as usize),
            get_function(&mut second, module, c"nop".as_ptr() as usize),
        ];
        line("twice", (codes, that("same", first == second)));
    }),
    ("shapes", || {
        let (nop, stream) = (kernel(c"nop"), stream());
        for block in [0, 1, 1024, 1025, u32::MAX] {
            line(
                format!("block_{block}"),
                launch_as(nop, 1, block, stream, &[]),
            );
        }
        for grid in [0, 1, 65536, 0x7fff_ffff, 0x8000_0000] {
            // Too many blocks would take long.
            if grid <= 65536 || grid > 0x7fff_ffff {
                line(format!("grid_{grid}"), launch_as(nop, grid, 1, stream, &[]));
            }
        }
        let shape = |grid: [u32; 3], block: [u32; 3]| {
            let ([x, y, z], [a, b, c]) = (grid, block);
            launch_kernel(nop, x, y, z, a, b, c, 0, stream, 0, 0)
        };
        line("grid_y_0", shape([1, 0, 1], [1, 1, 1]));
        line("grid_y_65536", shape([1, 65536, 1], [1, 1, 1]));
        line("grid_z_65536", shape([1, 1, 65536], [1, 1, 1]));
        line("block_z_65", shape([1, 1, 1], [1, 1, 65]));
        line("block_z_64", shape([1, 1, 1], [1, 1, 64]));
        line("block_33x32", shape([1, 1, 1], [33, 32, 1]));
        line("block_y_0", shape([1, 1, 1], [1, 0, 1]));
        line("synchronize", stream_synchronize(stream));
    }),
    ("params_null", || {
        let (put, stream) = (kernel(c"put"), stream());
        answer(done(
            launch_kernel(put, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0),
            stream,
        ));
    }),
    ("params_extra", || {
        let (nop, put, stream, words) = (kernel(c"nop"), kernel(c"put"), stream(), Words::new());
        line("more", done(launch(nop, stream, &[1, 2]), stream));
        // CU_LAUNCH_PARAM_BUFFER_POINTER, the buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, the size, the
        // end.
        let (buffer, mut size) = ([words.at(0), 9], 16_usize);
        let extra = [1, buffer.as_ptr() as usize, 2, &raw mut size as usize, 0];
        let code = launch_kernel(put, 1, 1, 1, 1, 1, 1, 0, stream, 0, extra.as_ptr() as usize);
        let codes = done(code, stream);
        line("buffer", format!("{} {}", names(&codes), words.load(0)));
        let params = [&raw const buffer[0] as usize, &raw const buffer[1] as usize];
        let code = launch_kernel(
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
        line("both", code);
        size = 8;
        let code = launch_kernel(put, 1, 1, 1, 1, 1, 1, 0, stream, 0, extra.as_ptr() as usize);
        line("buffer_too_small", code);
        let _ = size;
    }),
    ("shared_too_much", || {
        let (nop, stream) = (kernel(c"nop"), stream());
        let codes = [48 << 10, (48 << 10) + 1, 1 << 20]
            .map(|bytes| launch_kernel(nop, 1, 1, 1, 1, 1, 1, bytes, stream, 0, 0));
        answer(codes);
    }),
    ("module_unload_used", || {
        let (module, stream, words) = (module(), stream(), Words::new());
        let spin = kernel_of(module, c"spin");
        let code = launch(spin, stream, &[words.at(0)]);
        let opener = words.open_after(1000);
        let unload = module_unload(module);
        let early = words.load(0) == 0;
        let _ = opener.join();
        let codes = names(&[code, unload, stream_synchronize(stream)]);
        answer((codes, that("returns while the kernel runs", early)));
    }),
    ("module_unload_twice", || {
        let module = module();
        answer([module_unload(module), module_unload(module)]);
    }),
    ("function_after_unload", || {
        let (module, stream) = (module(), stream());
        let nop = kernel_of(module, c"nop");
        answer([module_unload(module), launch(nop, stream, &[])]);
    }),
    // A function of another context's module.
    ("nonresident", || {
        let nop = kernel(c"nop");
        another_context();
        let stream = stream();
        answer([
            launch(nop, stream, &[]),
            launch(nop, 0, &[]),
            ctx_synchronize(),
        ]);
    }),
    ("launch_null_streams", || {
        let nop = kernel(c"nop");
        let codes = [0, 1, 2].map(|stream| launch(nop, stream, &[]));
        answer([codes[0], codes[1], codes[2], ctx_synchronize()]);
    }),
    ("entry_without_visible", || {
        let text = ".version 6.4\n.target sm_60\n.address_size 64\n.entry a() { ret; }\n.func b() { ret; }\0";
        let (mut module, mut function) = (0, 0);
        line(
            "load",
            module_load_data(&mut module, text.as_ptr() as usize),
        );
        line(
            "entry",
            get_function(&mut function, module, c"a".as_ptr() as usize),
        );
        line(
            "func",
            get_function(&mut function, module, c"b".as_ptr() as usize),
        );
    }),
    // Whether loading returns while a kernel spins.
    ("load_while_parked", || {
        let (stream, words) = (stream(), Words::new());
        spin(stream, words, 0);
        let opener = words.open_after(2000);
        let module = module();
        line("module_returns", words.load(0) == 0);
        let nop = kernel_of(module, c"nop");
        line("function_returns", words.load(0) == 0);
        let code = launch(nop, stream_with(1), &[]);
        line(
            "launch_returns",
            format!("{code} {}", yes(words.load(0) == 0)),
        );
        let _ = opener.join();
    }),
];
