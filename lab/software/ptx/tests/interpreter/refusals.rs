//! Texts that are refused, and texts that are no PTX at all.

use proptest::prelude::*;
use rstest::rstest;
use syncline_software_ptx::{Module, ParseError, Refusal};

const TEXTS: [&str; 4] = [
    include_str!("../../../../../recipes/src/produce.ptx"),
    include_str!("../../../../../backend-cuda/src/timing/clock.ptx"),
    include_str!("../../../../../backend-cuda/tests/early.ptx"),
    include_str!("../../../../../demo/src/compute/wave.ptx"),
];

/// Reads a kernel with this body, whose first line is line 7.
fn body(text: &str) -> Result<Module, ParseError> {
    Module::parse(&format!(
        ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry f(.param .u64 x) {{
.reg .u16 %h; .reg .u32 %r<4>; .reg .u64 %d<4>;\n.reg .pred %p;\n{text}\n}}"
    ))
}

#[test]
fn an_instruction_that_is_not_supported_is_named_with_its_line() {
    for instruction in [
        "add.f32",
        "fma.rn.f32",
        "bar.sync",
        "barrier.sync",
        "call",
        "tex.1d.v4.s32.f32",
        "tex.2d.v4.f32.f32",
        "tex.level.2d.v4.f32.f32",
        "tex.grad.2d.v4.f32.f32",
        "tex.cube.v4.f32.f32",
        "tex.2dms.v4.s32.s32",
        "tex.2d.v2.f16x2.s32",
        "tex.2d.v4.f16.s32",
        "tex.2d.s32.s32",
        "tld4.r.2d.v4.f32.f32",
        "txq.width.b32",
        "suq.width.b32",
        "sured.b.add.2d.u32.trap",
        "suld.p.2d.v4.b32.trap",
        "sust.p.2d.v4.b32.trap",
        "suld.b.2d.b32",
        "suld.b.cube.b32.trap",
        "suld.b.2d.u32.trap",
        "suld.b.2d.v4.b64.trap",
        "suld.b.2d.wb.b32.trap",
        "sust.b.2d.ca.b32.trap",
        "vote.sync.any.pred",
        "ld.shared.u32",
        "ld.const.u32",
        "ld.local.u32",
        "st.param.u32",
        "st.shared.u32",
        "ld.global.v2.u32",
        "ld.global.f32",
        "ld.volatile.param.u32",
        "ld.relaxed.u32",
        "add.cc.u32",
        "addc.u32",
        "add.b32",
        "add.u8",
        "add.sat.u32",
        "and.u32",
        "not.u32",
        "neg.u32",
        "shl.u32",
        "min.b32",
        "mul.u32",
        "mul.wide.u64",
        "setp.lt.b32",
        "setp.lo.s32",
        "setp.eq.pred",
        "cvt.rn.f32.s32",
        "cvt.u32.b32",
        "mov.u8",
        "selp.b8",
        "cvta.shared.u64",
        "cvta.to.global.u32",
        "atom.add.s64",
        "atom.and.u32",
        "atom.add.f32",
        "atom.shared.add.u32",
        "red.exch.b32",
        "red.acquire.gpu.add.u32",
        "fence.sc",
        "membar.gpu",
        "nanosleep.s32",
        "exit.uni",
        "bra.far",
        "brx.idx",
        "griddepcontrol",
    ] {
        let error = body(&format!("mov.u32 %r0, 1;\n{instruction} %r0, %r1;")).unwrap_err();
        let refusal = Refusal::Instruction(instruction.to_owned());
        assert_eq!(error, ParseError { line: 8, refusal });
    }
    let error = body("/* two\nlines */ // one\nadd.f32 %r0, %r1, %r2;").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 9: the instruction `add.f32` is not supported"
    );
}

#[rstest]
#[case::register(".reg .f32 %f;", ".f32")]
#[case::registers_in_a_scope("{ .reg .f64 %f<4>; }", ".f64")]
#[case::constant("mov.b32 %r0, 0f3f800000;", "0f3f800000")]
#[case::double_constant("mov.b64 %d0, 0D3ff0000000000000;", "0D3ff0000000000000")]
fn a_floating_point_number_is_named_as_the_cause(#[case] text: &str, #[case] named: &str) {
    let refusal = Refusal::FloatingPoint(named.to_owned());
    assert_eq!(body(text).unwrap_err(), ParseError { line: 7, refusal });
}

#[test]
fn a_refusal_is_written_with_its_line() {
    let error = body(".reg .f32 %f;").unwrap_err().to_string();
    assert_eq!(
        error,
        "line 7: `.f32`: floating-point numbers are not supported"
    );
}

#[test]
fn a_kernel_need_not_be_visible() {
    let text = ".version 6.4\n.target sm_60\n.address_size 64\n.entry f() { ret; }";
    assert!(Module::parse(text).unwrap().entry("f").is_some());
}

#[test]
fn what_nvidias_driver_refuses_is_refused() {
    // Tried with driver 580.159.04.
    for text in [
        "add.u32 %r0, %tid.x, 1;",
        "add.u64 %d0, %d1, %globaltimer;",
        "mov.u64 %d0, %tid.x;",
        "ld.u32 %r0, [%d0-4];",
        "ld.u32 %r0, [%r1];",
        "ld.u32 %r0, [16];",
        ";",
        "@%p { exit; }",
        "{ L: } bra L;",
        "bra L; { L: }",
        ".reg .u32 %y<4>; .reg .u32 %y2;",
        ".reg .u32 _;",
        ".reg .u32 x;",
        "x: exit;",
        "shl.b32 %r0, %r1, %h;",
        "shl.b32 %r0, %r1, %d0;",
        "st.u64 [%d0], %r1;",
        "st.u32 [%d0], %tid.x;",
        "add.u32 %tid.x, %r1, %r1;",
        "popc.b32 %d0, %r1;",
        "cvta.global.u64 %d0, x;",
        "ld.param::entry.u32 %r0, [x];",
    ] {
        assert!(body(text).is_err(), "{text}");
    }
    for text in [
        "exit;",
        "{ L: bra L; } L: bra L;",
        "st.u32 [%d0], %d1;",
        "neg.s32 %r0, 5;",
        "mov.u32 %r0, %tid .x;",
        "cvt.u16.u32 %h, %tid.x;",
        "cvt.u32.u32 %r0, 5;",
        ".loc 1 2 3\n",
        "fence.gpu;",
        "ld.global.ca.nc.u32 %r0, [%d0];",
        "ld.u16 %r0, [%d0];",
        "ld.u32 %d0, [%d1+-4];",
        "atom.relaxed.add.u32 %r0, [%d0], 1;",
        ".pragma \"nounroll\";",
        "bra.uni L; L:",
        "",
    ] {
        assert_eq!(body(text).err(), None, "{text}");
    }
}

#[test]
fn operands_must_fit() {
    for text in [
        "add.u32 %r0, %r1;",
        "add.u32 %r0, %r1, %r1, %r1;",
        "add.u32 5, %r1, %r1;",
        "add.u32 %r0 %r1, %r1;",
        "add.u32 %r0, %r1, %r1",
        "add.u32 %r0, %d1, %r1;",
        "add.u32 %r0, %p, %r1;",
        "add.u32 %r0, %r1, %r4;",
        "add.u32 %r0, %r1, %r01;",
        "add.u32 %r0, %r1, 1.5;",
        "add.u32 %r0, %r1, 0f3F800000;",
        "add.u32 %r0, %r1, -%r1;",
        "mov.u64 %d0, 18446744073709551616;",
        "mov.u32 %r0, 09;",
        "mov.u32 %r0, 0x;",
        "mov.u32 %r0, %tid;",
        "mov.u32 %r0, %tid.w;",
        "mov.u32 %r0, %globaltimer;",
        "@%r0 exit;",
        "@%q exit;",
        "bra nowhere;",
        "L: L: exit;",
        "ld.param.u64 %d0, [x+4];",
        "ld.param.u32 %r0, [x+8];",
        "ld.param.u32 %r0, [x+-4];",
        "ld.param.u32 %r0, [x+2];",
        "ld.param.u32 %r0, [y];",
        "ld.u64 %r0, [%d0];",
        "lop3.b32 %r0, %r1, %r1, %r1, 256;",
        ".reg .u32 %r<4>;",
        ".reg .u32 %h;",
        ".reg .f32 %f;",
        ".shared .u32 s;",
        "selp.u32 %r0, 1, 2, %r1;",
        "mad.wide.u32 %d0, %r1, %r1, %r1;",
        "ld.u32 %r0, [%d0+4294967296];",
        "suld.b.2d.b32.trap %r0, [%d0, %r1];",
        "suld.b.2d.b32.trap %r0, [%d0, {%r1}];",
        "suld.b.3d.b32.trap %r0, [%d0, {%r1, %r1, %r1}];",
        "suld.b.2d.b32.trap %r0, [%r1, {%r1, %r1}];",
        "suld.b.2d.b32.trap %r0, [1, {%r1, %r1}];",
        "suld.b.2d.b32.trap %r0, [%d0, {%d1, %r1}];",
        "suld.b.2d.b32.trap %h, [%d0, {%r1, %r1}];",
        "suld.b.2d.v2.b32.trap %r0, [%d0, {%r1, %r1}];",
        "suld.b.2d.v2.b32.trap {%r0}, [%d0, {%r1, %r1}];",
        "suld.b.2d.b32.trap 5, [%d0, {%r1, %r1}];",
        "tex.2d.v4.u32.s32 {%r0, %r1, %r2}, [%d0, {%r1, %r1}];",
        "tex.2d.v4.u32.s32 {%r0, %r1, %r2, %d1}, [%d0, {%r1, %r1}];",
        "tex.2d.v4.f32.s32 {%r0, %r1, %r2, %r3}, [%d0, {%r1, %r1}];",
        "tex.level.2d.v4.u32.s32 {%r0, %r1, %r2, %r3}, [%d0, {%r1, %r1}];",
        "} }",
        "{",
        "\"text\"",
        "#",
        "/* open",
        "\"open",
    ] {
        let error = body(text).expect_err(text);
        assert!(error.line == 7 || error.line == 8, "{text}: {error}");
    }
}

#[test]
fn what_textures_do_not_have_is_named() {
    let tex = "tex.2d.v4.u32.s32";
    let d = "{%r0, %r1, %r2, %r3}";
    for (operands, reason) in [
        (
            format!("{d}|%p, [%d0, {{%r1, %r1}}]"),
            "the predicate of residency is not supported",
        ),
        (
            format!("{d}, [%d0, %d1, {{%r1, %r1}}]"),
            "a sampler beside the texture is not supported",
        ),
        (
            format!("{d}, [%d0, {{%r1, %r1}}], {{%r1, %r1}}"),
            "offsets and depth comparisons are not supported",
        ),
    ] {
        let instruction = tex.to_owned();
        let refusal = Refusal::Operand {
            instruction,
            reason,
        };
        let error = body(&format!("{tex} {operands};")).unwrap_err();
        assert_eq!(error, ParseError { line: 7, refusal });
    }
}

#[test]
fn a_module_must_be_of_a_known_level() {
    let parse = |head: &str, body: &str| {
        Module::parse(&format!(
            "{head}\n.address_size 64\n.entry f() {{ {body} }}"
        ))
    };
    let refusal = |head: &str, body: &str| parse(head, body).unwrap_err().refusal;
    assert_eq!(
        refusal(".version 99.0\n.target sm_90", ""),
        Refusal::Version((99, 0))
    );
    let (version, target) = ((6, 4), 90);
    assert_eq!(
        refusal(".version 6.4\n.target sm_90", ""),
        Refusal::Target { version, target }
    );
    assert!(matches!(
        refusal(".version 7.8\n.target sm_95", ""),
        Refusal::Target { .. }
    ));
    assert!(matches!(
        refusal(".target sm_90\n.version 7.8", ""),
        Refusal::Syntax { .. }
    ));
    for text in [
        "griddepcontrol.wait;",
        "fence.sc.sys;",
        "nanosleep.u32 1;",
        ".reg .u64 %a; .reg .u32 %b; ld.relaxed.gpu.u32 %b, [%a];",
        ".reg .u64 %a; .reg .u32 %b; ld.weak.u32 %b, [%a];",
        ".reg .u64 %a; red.release.gpu.add.u32 [%a], 1;",
    ] {
        assert!(matches!(
            refusal(".version 6.4\n.target sm_60", text),
            Refusal::Requires { .. }
        ));
        assert!(parse(".version 7.8\n.target sm_90a, debug", text).is_ok());
    }
    let module = parse(".version 7.8\n.target sm_90a", "").unwrap();
    assert_eq!((module.version(), module.target()), ((7, 8), 90));
}

#[test]
fn directives_of_entries() {
    let parse = |text: &str| {
        Module::parse(&format!(
            ".version 7.8 .target sm_90 .address_size 64 {text}"
        ))
    };
    for text in [
        "",
        ".visible .entry f { ret; }",
        ".weak .entry f() { ret; }",
        ".entry f(.param .u64 .ptr .global .align 8 a, .param .align 8 .b8 b[16], .param .u8 c) {}",
        ".entry f() .maxntid 64, 1, 1 .minnctapersm 2 {}",
        ".file 1 \"x.cu\"\n.pragma \"x\"; .entry f() {}",
    ] {
        assert_eq!(parse(text).err(), None, "{text}");
    }
    for text in [
        ".global .u32 x;",
        ".func f() {}",
        ".extern .entry f() {}",
        ".visible .func f() {}",
        ".entry f() {} }",
        ".entry f() {} .entry f() {}",
        ".entry f(.param .u64 a, .param .u64 a) {}",
        ".entry f(.param .f32 a) {}",
        ".entry f(.param .pred a) {}",
        ".entry f(.param .b8 a[0]) {}",
        ".entry f(.param .b8 a[4353]) {}",
        ".entry f(.param .u64 a[18446744073709551615]) {}",
        ".entry f(.param .align 3 .b8 a[3]) {}",
        ".entry f(.param .u64 a,) {}",
        ".entry f(.reg .u64 a) {}",
        ".entry f() .noreturn {}",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn limits_of_blocks_hold() {
    use syncline_software_ptx::{Launch, LaunchError};
    let text = ".version 7.8 .target sm_90 .entry a() .maxntid 8, 8 {} .entry b() .reqntid 4, 2 {}";
    let module = Module::parse(text).unwrap();
    let check = |name: &str, block| {
        module.entry(name).unwrap().check(&Launch {
            grid: [1; 3],
            block,
            params: vec![],
        })
    };
    assert_eq!(check("a", [64, 1, 1]), Ok(()));
    assert_eq!(check("a", [65, 1, 1]), Err(LaunchError::Block));
    assert_eq!(check("b", [4, 2, 1]), Ok(()));
    assert_eq!(check("b", [2, 4, 1]), Err(LaunchError::Block));
}

#[test]
fn large_texts_cost_no_more_than_their_size() {
    // Registers that no instruction uses take no memory.
    assert!(body(".reg .u32 %big<4000000000>; mov.u32 %big3999999999, 1;").is_ok());
    assert!(body(&"{".repeat(100_000)).is_err());
    let registers: String = (0..70_000)
        .map(|n| format!("mov.u32 %big{n}, 1;"))
        .collect();
    let error = body(&format!(".reg .u32 %big<70000>; {registers}")).unwrap_err();
    assert!(matches!(error.refusal, Refusal::Limit(_)));
    assert!(body(&format!("add{} %r0, %r1, %r2;", ".x".repeat(1000))).is_err());
    assert!(body(&"a".repeat(1 << 20)).unwrap_err().to_string().len() < 200);
}

proptest! {
    #[test]
    fn a_mangled_text_is_read_or_refused(
        which in 0..TEXTS.len(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..12_usize, "[ -~\n]{0,6}"), 1..6),
    ) {
        let mut text = TEXTS[which].to_owned();
        for (at, length, with) in cuts {
            let start = at.index(text.len());
            let end = (start + length).min(text.len());
            text.replace_range(start..end, &with);
        }
        if let Err(error) = Module::parse(&text) {
            let lines = u32::try_from(text.lines().count()).unwrap();
            prop_assert!((1..=lines + 1).contains(&error.line), "{}", error);
        }
    }

    #[test]
    fn any_words_are_read_or_refused(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "mov", ".u32", ".u64", ".pred", "%r0", "%d0", "%p", ",", ";", "{", "}", "[", "]", "(", ")", "@", "!",
                "+", "-", ":", "L", "bra", "1", "0xffffffffffffffff", ".reg", "%x", "<", ">", "|", "setp", ".eq", "ld",
                ".param", "x", "st", ".global", "atom", ".add", ".", "\"", "/*", "*/", "//", "\n", "%tid", ".x", "é",
                ".loc", ".pragma", "_", "%", "cvt", "lop3", ".b32", "suld", "sust", ".b", "tex", ".1d", ".v4",
                ".s32", ".trap",
            ]),
            0..40,
        ),
        spaced in any::<bool>(),
    ) {
        let text = words.join(if spaced { " " } else { "" });
        drop(body(&text));
        drop(Module::parse(&text));
    }
}
