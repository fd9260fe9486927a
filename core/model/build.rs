//! Selects loom's primitives. Not by loom's usual name, `cfg(loom)`: applications that model
//! themselves set that for all they depend on.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=syncline_loom");
}
