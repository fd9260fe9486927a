//! Selects loom's primitives by `cfg(syncline_loom)`.
//!
//! Loom's usual name is `cfg(loom)`. Applications that run loom set that for all dependencies.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=syncline_loom");
}
