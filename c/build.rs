//! Linker options of the shared library.

fn main() {
    // The engine's threads run code of the library, so a `dlclose` must not unmap it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
