//! Linker options of the shared library.

fn main() {
    // The engine's threads run code of the library, so a `dlclose` must not unmap it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Without a name, a program that is linked by a path looks for the library at that path.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsyncline_c.so");
    println!("cargo::rerun-if-changed=build.rs");
}
