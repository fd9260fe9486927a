//! `syncline info`.

use std::process::ExitCode;

use serde_json::{Value, json};
use syncline::Mechanism;
use syncline::backend::Device as _;
use syncline::error::Process;
use syncline::negotiate::{Conflict, Party, PartyId, Plan, negotiate};
use syncline::{Found, Inventory, info::BackendKind, info::Info};

use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::say;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// How two devices would share a timeline, in each direction. Prints the plan and its reasons,
    /// or the conflict. Opens and makes nothing
    #[arg(long, num_args = 2, value_names = ["DEVICE", "DEVICE"])]
    pair: Option<Vec<String>>,
}

pub(crate) fn run(args: &Args, machine: &Machine<'_>) -> Result<ExitCode, Failure> {
    let inventory = machine.inventory();
    if let Some([left, right]) = args.pair.as_deref() {
        let answers = ask(inventory.select(left)?, inventory.select(right)?);
        if args.json {
            say!(
                "{}",
                serde_json::to_string_pretty(&answers_to_json(&answers))?
            );
        } else {
            answers.iter().for_each(print_answer);
        }
    } else if args.json {
        say!("{}", serde_json::to_string_pretty(&to_json(inventory))?);
    } else {
        print(inventory);
    }
    Ok(ExitCode::SUCCESS)
}

/// A question about two devices, and the answer.
type Answer = (String, Result<Plan, Conflict>);

/// Negotiates for each direction and for both.
fn ask(left: &Found, right: &Found) -> [Answer; 3] {
    let party = |found: &Found| {
        let id = PartyId {
            process: Process::this(),
            device: found.index() as u64 + 1,
        };
        Party::described(id, found.info())
    };
    let (left, right) = (party(left), party(right));
    let way = |from: &Party, to: &Party| {
        let asked = format!("{} signals, {} waits", from.name(), to.name());
        (
            asked,
            negotiate([from.clone().signals(), to.clone().waits()]),
        )
    };
    let both = [&left, &right].map(|side| side.clone().signals().waits());
    [
        way(&left, &right),
        way(&right, &left),
        ("both signal and wait".into(), negotiate(both)),
    ]
}

fn print_answer((asked, answer): &Answer) {
    say!("{asked}:");
    let text = match answer {
        Ok(plan) => plan.to_string(),
        Err(conflict) => conflict.to_string(),
    };
    text.lines().for_each(|line| say!("  {line}"));
    say!("");
}

fn answers_to_json(answers: &[Answer]) -> Value {
    let all = answers.iter().map(|(asked, answer)| match answer {
        Ok(plan) => json!({
            "asked": asked,
            "mechanism": plan.mechanism().name(),
            "handle": plan.mechanism().handle().map(syncline::handle::HandleKind::name),
            "native": plan.mechanism().is_native(),
            "why": plan.why(),
            "home": plan.home().name(),
            "parts": plan.parties().iter().map(|party| json!({
                "party": party.name(),
                "permission": plan.permission(party.id()).map(|it| it.to_string()),
                "duty": plan.duty(party.id()),
            })).collect::<Vec<_>>(),
            "next_best": plan.next_best().map(Mechanism::name),
        }),
        Err(conflict) => json!({ "asked": asked, "conflict": conflict.to_string() }),
    });
    json!({
        "commit": syncline_conformance::COMMIT,
        "date": syncline_conformance::report::now(),
        "command": syncline_conformance::report::command(),
        "answers": all.collect::<Vec<_>>(),
    })
}

/// Returns the indices of the other devices that are the same GPU.
fn same_gpu(inventory: &Inventory, found: &Found) -> Vec<usize> {
    let devices = inventory.devices().iter();
    let same = devices.filter(|f| f.index() != found.index() && f.info().same_gpu(found.info()));
    same.map(Found::index).collect()
}

/// Returns whether a sample of the device's clock refuses what its driver says of both clocks.
///
/// Opens a Vulkan device that has a calibrated clock. No other driver reads the host's clock
/// itself.
fn calibration(found: &Found) -> Calibration {
    let info = found.info();
    if info.backend != BackendKind::Vulkan || !info.capabilities.calibrated_clock {
        return Calibration::default();
    }
    let clock = found.open().and_then(|device| device.clock());
    let sampled = clock.and_then(|clock| {
        clock.sample()?;
        Ok(clock.refused_calibration().map(str::to_owned))
    });
    match sampled {
        Ok(refused) => Calibration {
            refused,
            unchecked: None,
        },
        Err(error) => Calibration {
            refused: None,
            unchecked: Some(error.to_string()),
        },
    }
}

/// What a check of a calibrated clock has found. Both are `None` if it is right.
#[derive(Default)]
struct Calibration {
    /// Why the driver's calibrated readings are not used.
    refused: Option<String>,
    /// Why they could not be checked.
    unchecked: Option<String>,
}

impl Calibration {
    /// What follows the answer that the device has a calibrated clock.
    fn note(&self) -> String {
        match (&self.refused, &self.unchecked) {
            (Some(reason), _) => format!(", but it is not used: {reason}"),
            (None, Some(reason)) => format!(", which was not checked: {reason}"),
            (None, None) => String::new(),
        }
    }
}

fn capabilities(info: &Info, calibration: &Calibration) -> Vec<(&'static str, String)> {
    let can = &info.capabilities;
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let names = |kinds: &[syncline::handle::HandleKind]| {
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
        (
            "calibrated clock",
            yes(can.calibrated_clock) + &calibration.note(),
        ),
        ("stream memory ops", yes(can.stream_memory_ops)),
        ("stream memory nor", yes(can.stream_memory_nor)),
        ("stream memory flush", yes(can.stream_memory_flush)),
        ("CUDA in graphics", yes(can.cuda_in_graphics)),
        ("exports", names(&can.exports)),
        ("imports", names(&can.imports)),
        ("queues", queues.join(", ")),
    ]
}

fn print(inventory: &Inventory) {
    for found in inventory.devices() {
        let info = found.info();
        say!("{} {} \"{}\"", found.index(), info.backend, info.name);
        if info.software {
            say!(
                "    software: it computes on the host's processors, and no result of it counts as a result of a GPU"
            );
        }
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
            // The probe did not query everything, so the capabilities are unknown.
            say!("");
            continue;
        }
        for (name, value) in capabilities(info, &calibration(found)) {
            say!("    {name:<20}{value}");
        }
        // A limit may leave a part of what it names.
        for (at, (what, reason)) in info.capabilities.limits.iter().enumerate() {
            let heading = if at == 0 { "limits" } else { "" };
            say!("    {heading:<20}{what}: {reason}");
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
            let calibration = match found.rejected() {
                None => calibration(found),
                Some(_) => Calibration::default(),
            };
            let names = |kinds: &[syncline::handle::HandleKind]| -> Vec<_> {
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
                "software": info.software,
                "same_gpu_as": same_gpu(inventory, found),
                "rejected": found.rejected().map(ToString::to_string),
                "capabilities": found.rejected().is_none().then(|| json!({
                    "native_timelines": can.native_timelines,
                    "max_value_difference": can.max_value_difference,
                    "timestamp_bits": can.timestamp_bits,
                    "timestamp_period_ns": can.timestamp_period_ns,
                    "calibrated_clock": can.calibrated_clock,
                    "calibration_refused": calibration.refused,
                    "calibration_unchecked": calibration.unchecked,
                    "stream_memory_ops": can.stream_memory_ops,
                    "stream_memory_nor": can.stream_memory_nor,
                    "stream_memory_flush": can.stream_memory_flush,
                    "cuda_in_graphics": can.cuda_in_graphics,
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
