//! Gives the library the name by which applications look for a CUDA driver.

fn main() {
    // `nodelete`: users of the driver close it and keep what it returned. Its threads also
    // continue.
    for argument in ["-Wl,-soname,libcuda.so.1", "-Wl,-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
