//! Keeps the library in the process until the process ends.

fn main() {
    // `nodelete`: the loader closes a layer with its instance. Threads of a device that the
    // application never destroys run on.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
