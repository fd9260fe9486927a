//! `syncline info`.

use std::process::ExitCode;

use serde_json::{Value, json};
use syncline::{Found, Info, Inventory};

use crate::failure::Failure;
use crate::output::say;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let inventory = crate::probe(false)?;
    if args.json {
        say!("{}", serde_json::to_string_pretty(&to_json(&inventory))?);
    } else {
        print(&inventory);
    }
    Ok(ExitCode::SUCCESS)
}

/// The indices of the other devices that are the same GPU.
fn same_gpu(inventory: &Inventory, found: &Found) -> Vec<usize> {
    let devices = inventory.devices().iter();
    let same = devices.filter(|f| f.index() != found.index() && f.info().same_gpu(found.info()));
    same.map(Found::index).collect()
}

fn capabilities(info: &Info) -> Vec<(&'static str, String)> {
    let can = &info.capabilities;
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let names = |kinds: &[syncline::HandleKind]| {
        let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
        if names.is_empty() {
            "nothing".into()
        } else {
            names.join(", ")
        }
    };
    let queues: Vec<String> = can
        .queues
        .iter()
        .map(|family| {
            let count = family
                .count
                .map_or_else(|| "any number".into(), |count| count.to_string());
            format!("{count} {}", family.kind)
        })
        .collect();
    vec![
        (
            "timelines",
            if can.native_timelines {
                "native"
            } else {
                "built by the backend"
            }
            .into(),
        ),
        (
            "largest difference",
            format!("{:#x}", can.max_value_difference),
        ),
        (
            "timestamps",
            format!(
                "{} bits, {} ns a tick",
                can.timestamp_bits, can.timestamp_period_ns
            ),
        ),
        ("calibrated clock", yes(can.calibrated_clock)),
        ("stream memory ops", yes(can.stream_memory_ops)),
        ("stream memory flush", yes(can.stream_memory_flush)),
        ("exports", names(&can.exports)),
        ("imports", names(&can.imports)),
        ("queues", queues.join(", ")),
    ]
}

fn print(inventory: &Inventory) {
    for found in inventory.devices() {
        let info = found.info();
        say!("{} {} \"{}\"", found.index(), info.backend, info.name);
        if let Some(error) = found.rejected() {
            say!("    cannot be used: {error}");
        }
        say!("    {:<20}{}", "made by", info.vendor);
        say!("    {:<20}{}", "driver", info.driver);
        if let Some(uuid) = info.uuid {
            let same: Vec<_> = same_gpu(inventory, found)
                .iter()
                .map(ToString::to_string)
                .collect();
            let same = if same.is_empty() {
                String::new()
            } else {
                format!(" (the same GPU as {})", same.join(", "))
            };
            say!("    {:<20}{uuid}{same}", "device UUID");
        }
        if found.rejected().is_some() {
            // Not all was asked of it: what it could do is not known.
            say!("");
            continue;
        }
        for (name, value) in capabilities(info) {
            say!("    {name:<20}{value}");
        }
        for (what, reason) in &info.capabilities.limits {
            say!("    no {what}: {reason}");
        }
        say!("");
    }
    for error in inventory.unavailable() {
        say!("{error}");
    }
}

fn to_json(inventory: &Inventory) -> Value {
    let devices: Vec<Value> = inventory
        .devices()
        .iter()
        .map(|found| {
            let info = found.info();
            let can = &info.capabilities;
            let names = |kinds: &[syncline::HandleKind]| -> Vec<_> {
                kinds.iter().map(|kind| kind.name()).collect()
            };
            json!({
                "index": found.index(),
                "backend": info.backend.name(),
                "name": info.name,
                "vendor": info.vendor,
                "uuid": info.uuid.map(|uuid| uuid.to_string()),
                "parent_uuid": info.parent_uuid.map(|uuid| uuid.to_string()),
                "driver_uuid": info.driver_uuid.map(|uuid| uuid.to_string()),
                "luid": info.luid,
                "driver": info.driver,
                "same_gpu_as": same_gpu(inventory, found),
                "rejected": found.rejected().map(ToString::to_string),
                "capabilities": found.rejected().is_none().then(|| json!({
                    "native_timelines": can.native_timelines,
                    "max_value_difference": can.max_value_difference,
                    "timestamp_bits": can.timestamp_bits,
                    "timestamp_period_ns": can.timestamp_period_ns,
                    "calibrated_clock": can.calibrated_clock,
                    "stream_memory_ops": can.stream_memory_ops,
                    "stream_memory_flush": can.stream_memory_flush,
                    "exports": names(&can.exports),
                    "imports": names(&can.imports),
                    "queues": can.queues.iter().map(|family| json!({
                        "kind": family.kind.name(),
                        "count": family.count,
                        "index": family.index,
                        "timestamp_bits": family.timestamp_bits,
                    })).collect::<Vec<_>>(),
                    "limits": can.limits.iter()
                        .map(|(what, reason)| json!({ "what": what, "reason": reason }))
                        .collect::<Vec<_>>(),
                })),
            })
        })
        .collect();
    json!({
        "commit": syncline_conformance::COMMIT,
        "date": syncline_conformance::report::now(),
        "command": syncline_conformance::report::command(),
        "devices": devices,
        "unavailable": inventory.unavailable().iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
