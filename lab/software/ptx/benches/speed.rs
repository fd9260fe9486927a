//! Measures how fast the demo's kernels run on one thread.

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use syncline_software_ptx::{Fault, Launch, Machine, Module};

const SIDE: u32 = 512;

/// Words of 32 bits, from address 0.
struct Words(Vec<AtomicU32>);

impl Words {
    fn at(&self, address: u64, bytes: u32, write: bool) -> Result<&AtomicU32, Fault> {
        let index = usize::try_from(address / 4).ok();
        let word = index.and_then(|index| self.0.get(index));
        word.ok_or(Fault::Address {
            address,
            bytes,
            write,
        })
    }
}

impl Machine for Words {
    fn load(&self, address: u64, bytes: u32) -> Result<u64, Fault> {
        Ok(self
            .at(address, bytes, false)?
            .load(Ordering::Relaxed)
            .into())
    }

    fn store(&self, address: u64, bytes: u32, value: u64) -> Result<(), Fault> {
        self.at(address, bytes, true)?
            .store(value as u32, Ordering::Relaxed);
        Ok(())
    }

    fn update(
        &self,
        address: u64,
        bytes: u32,
        _change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        // The kernels have no atomic operations.
        Err(Fault::Address {
            address,
            bytes,
            write: true,
        })
    }

    fn global_timer(&self) -> u64 {
        0
    }

    fn pause(&self) -> bool {
        false
    }

    fn fence(&self) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let module = Module::parse(include_str!("../../../../demo/src/compute/wave.ptx"))?;
    let cells = SIDE * SIDE;
    let words = Words((0..2 * cells).map(|_| AtomicU32::new(0)).collect());
    let entry = module.entry("step").ok_or("no such kernel")?;
    let mut params = Vec::new();
    params.extend(0_u64.to_le_bytes());
    params.extend(u64::from(4 * cells).to_le_bytes());
    params.extend([SIDE.to_le_bytes(), SIDE.to_le_bytes()].concat());
    // Emitters.
    params.resize(entry.params_size(), 1);
    let launch = Launch {
        grid: [SIDE / 16, SIDE / 16, 1],
        block: [16, 16, 1],
        params,
    };
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        entry.run(&launch, &words)?;
        best = best.min(start.elapsed());
    }
    println!("step: {best:.1?} for {cells} threads");
    Ok(())
}
