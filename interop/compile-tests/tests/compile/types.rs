//! What the types forbid. Each file in `types/missing/` lacks a right, and the compiler names it.
//!
//! Each file in `types/recorders/` moves a recorder out of its submission.

#[path = "types/granted.rs"]
mod granted;

/// The expected messages are those of one compiler. Doc tests check the same with other compilers.
///
/// With `TRYBUILD=overwrite` what this compiler says becomes what is expected.
#[test]
#[rustversion::attr(
    not(stable(1.95)),
    ignore = "the expected messages are those of Rust 1.95"
)]
fn a_right_that_is_missing_does_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile/types/missing/*.rs");
    cases.compile_fail("tests/compile/types/recorders/*.rs");
}
