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

/// Loads a module for a version and a target.
fn load_for(version: &str, target: &str, rest: &str) -> Code {
    load(&format!(
        ".version {version}\n.target {target}\n.address_size 64\n{rest}"
    ))
}

const EMPTY: &str = ".visible .entry a() { ret; }";

/// Launches a kernel without parameters in blocks of these shapes.
fn shape(kernel: Handle, grid: [u32; 3], block: [u32; 3], stream: Handle) -> Code {
    let ([x, y, z], [a, b, c]) = (grid, block);
    launch_kernel(kernel, x, y, z, a, b, c, 0, stream, 0, 0)
}

const QUESTIONS: Questions = &[
    ("bad_text", || {
        line("words", load("this is no PTX"));
        line("no_version", load(".target sm_60\n.address_size 64\n"));
        line("no_target", load(".version 6.4\n.address_size 64\n"));
        for (what, rest) in [
            ("head_only", ""),
            ("unknown_opcode", ".visible .entry a() { jump; ret; }"),
            ("no_ret", ".visible .entry a() { }"),
            ("twice", &[EMPTY, EMPTY].concat()),
        ] {
            line(what, load_for("6.4", "sm_60", rest));
        }
    }),
    ("newer_target", || {
        for (version, target) in [
            ("6.4", "sm_50"),
            ("6.4", "sm_80"),
            ("6.4", "sm_999"),
            ("8.7", "sm_90"),
            ("8.7", "sm_100"),
        ] {
            let name = format!("version_{}_{target}", version.replace('.', "_"));
            line(name, load_for(version, target, EMPTY));
        }
    }),
    ("newer_version", || {
        for version in ["3.0", "6.4", "9.0", "9.9"] {
            line(version, load_for(version, "sm_60", EMPTY));
        }
    }),
    ("shapes", || {
        let (nop, stream) = (kernel(c"nop"), stream());
        for (what, grid, block) in [
            ("block_0", [1; 3], [0, 1, 1]),
            ("block_1024", [1; 3], [1024, 1, 1]),
            ("block_1025", [1; 3], [1025, 1, 1]),
            ("block_33x32", [1; 3], [33, 32, 1]),
            ("block_z_64", [1; 3], [1, 1, 64]),
            ("block_z_65", [1; 3], [1, 1, 65]),
            ("grid_0", [0, 1, 1], [1; 3]),
            ("grid_65536", [65536, 1, 1], [1; 3]),
            ("grid_2147483648", [1 << 31, 1, 1], [1; 3]),
            ("grid_y_65536", [1, 65536, 1], [1; 3]),
        ] {
            line(what, shape(nop, grid, block, stream));
        }
        line("synchronize", stream_synchronize(stream));
    }),
    ("params_null", || {
        let stream = stream();
        let launched = shape(kernel(c"put"), [1; 3], [1; 3], stream);
        answer(done(launched, stream));
    }),
    ("params_extra", || {
        let (nop, put, stream, words) = (kernel(c"nop"), kernel(c"put"), stream(), Words::new());
        line("more", done(launch(nop, stream, &[1, 2]), stream));
        // CU_LAUNCH_PARAM_BUFFER_POINTER, the buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, the size, the
        // end.
        let (buffer, size) = ([words.at(0), 9], 16_usize);
        let extra = [1, buffer.as_ptr() as usize, 2, &raw const size as usize, 0];
        let launch = |params: usize| {
            let extra = extra.as_ptr() as usize;
            launch_kernel(put, 1, 1, 1, 1, 1, 1, 0, stream, params, extra)
        };
        let codes = names(&done(launch(0), stream));
        line("buffer", format!("{codes} {}", words.load(0)));
        let params = [&raw const buffer[0], &raw const buffer[1]];
        line("both", launch(params.as_ptr() as usize));
    }),
    ("shared_too_much", || {
        let (nop, stream) = (kernel(c"nop"), stream());
        let launch = |bytes| launch_kernel(nop, 1, 1, 1, 1, 1, 1, bytes, stream, 0, 0);
        answer([48 << 10, (48 << 10) + 1, 1 << 20].map(launch));
    }),
    ("module_unload_twice", || {
        let module = module();
        answer([module; 2].map(module_unload));
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
        let [own, legacy] = [stream(), 0].map(|stream| launch(nop, stream, &[]));
        answer([own, legacy, ctx_synchronize()]);
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
        let early = yes(words.load(0) == 0);
        line("launch_returns", format!("{code} {early}"));
        let _ = opener.join();
    }),
];
