use std::mem::swap;

use syncline::{Recorder, cuda, host, vulkan};

fn any(outer: &mut Recorder<'_>, inner: &mut Recorder<'_>) {
    swap(outer, inner); //~ lifetime may not live long enough
}

fn of_the_host(outer: &mut host::Recorder<'_>, inner: &mut host::Recorder<'_>) {
    swap(outer, inner); //~ lifetime may not live long enough
}

fn of_cuda(outer: &mut cuda::Recorder<'_>, inner: &mut cuda::Recorder<'_>) {
    swap(outer, inner); //~ lifetime may not live long enough
}

fn of_vulkan(outer: &mut vulkan::Recorder<'_>, inner: &mut vulkan::Recorder<'_>) {
    swap(outer, inner); //~ lifetime may not live long enough
}

fn main() {}
