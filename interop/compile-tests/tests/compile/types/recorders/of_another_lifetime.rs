use syncline::{Recorder, cuda, host, vulkan};

fn any<'long: 'short, 'short>(recorder: Recorder<'long>) -> Recorder<'short> {
    recorder //~ lifetime may not live long enough
}

fn of_the_host<'long: 'short, 'short>(recorder: host::Recorder<'long>) -> host::Recorder<'short> {
    recorder //~ lifetime may not live long enough
}

fn of_cuda<'long: 'short, 'short>(recorder: cuda::Recorder<'long>) -> cuda::Recorder<'short> {
    recorder //~ lifetime may not live long enough
}

fn of_vulkan<'long: 'short, 'short>(recorder: vulkan::Recorder<'long>) -> vulkan::Recorder<'short> {
    recorder //~ lifetime may not live long enough
}

fn main() {}
