//! The command `syncline` with OpenCL beside its own backends:
//! `cargo run -p syncline-opencl --example command -- info`.

mod waves;
#[path = "../../tests/work/mod.rs"]
mod work;

use std::process::ExitCode;
use std::sync::Arc;

use syncline::Result;
use syncline_cli::{Command, ForeignBackend};
use syncline_demo::{Producer, Size};
use syncline_opencl::{Adapter, Device};

use waves::Waves;
use work::OpenCl;

struct Backend;

impl ForeignBackend for Backend {
    type Candidate = Adapter;
    type Subject = OpenCl;

    fn devices(&self) -> Result<Vec<Adapter>> {
        Adapter::all()
    }

    fn subject(&self, device: Device) -> Result<OpenCl> {
        OpenCl::new(device)
    }

    fn producer(&self, device: &Device, size: Size) -> Result<Arc<dyn Producer<Device>>> {
        Ok(Arc::new(Waves::new(device, size)?))
    }
}

fn main() -> ExitCode {
    Command::new().with(Backend).run()
}
