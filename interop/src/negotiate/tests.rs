//! Properties of every result of `negotiate`, and examples of each result.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use proptest::prelude::*;
use rstest::rstest;
use syncline_core::{
    handle::HandleKind,
    info::{BackendKind, Capabilities, Info, Uuid},
};

use super::*;

/// Kinds of parties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Threads,
    Workers,
    Cuda(u8),
    /// CUDA without handles of its memory.
    Older(u8),
    Partition(u8),
    Vulkan(u8),
    /// Vulkan without handles of memory.
    NoMemory(u8),
    /// A Vulkan device that neither exports nor imports.
    Software,
    /// A device without timestamps and handles.
    Silent,
}

const TIMELINE: HandleKind = HandleKind::TimelineOpaqueFd;
const BINARY: HandleKind = HandleKind::BinaryOpaqueFd;
const MEMORY: HandleKind = HandleKind::MemoryOpaqueFd;
const COUNTER: HandleKind = HandleKind::CounterMemfd;

fn process(id: u32) -> Process {
    Process { id, started: 7 }
}

fn party(kind: Kind, in_process: u32, device: u64) -> Party {
    let (backend, gpu, exports, imports, times): (_, Option<u8>, &[_], &[_], u32) = match kind {
        Kind::Threads => return Party::threads_of(process(in_process)),
        Kind::Workers => (BackendKind::Host, None, &[COUNTER], &[COUNTER], 64),
        Kind::Cuda(gpu) => (
            BackendKind::Cuda,
            Some(gpu),
            &[MEMORY],
            &[MEMORY, TIMELINE, BINARY, COUNTER],
            64,
        ),
        Kind::Older(gpu) | Kind::Partition(gpu) => (
            BackendKind::Cuda,
            Some(gpu),
            &[],
            &[MEMORY, TIMELINE, BINARY, COUNTER],
            64,
        ),
        Kind::Vulkan(gpu) => (
            BackendKind::Vulkan,
            Some(gpu),
            &[TIMELINE, BINARY, MEMORY],
            &[BINARY, TIMELINE, MEMORY],
            64,
        ),
        Kind::NoMemory(gpu) => (
            BackendKind::Vulkan,
            Some(gpu),
            &[TIMELINE, BINARY],
            &[BINARY, TIMELINE],
            64,
        ),
        Kind::Software => (BackendKind::Vulkan, Some(99), &[], &[], 64),
        Kind::Silent => (BackendKind::Other("silent"), None, &[], &[], 0),
    };
    let info = Info {
        backend,
        name: format!("{kind:?}"),
        vendor: String::new(),
        uuid: gpu.map(|gpu| Uuid([gpu; 16])),
        parent_uuid: matches!(kind, Kind::Partition(_)).then_some(Uuid([1; 16])),
        driver_uuid: (backend == BackendKind::Vulkan).then_some(Uuid([2; 16])),
        luid: None,
        driver: String::new(),
        software: false,
        capabilities: Capabilities {
            timestamp_bits: times,
            driver_queues: backend != BackendKind::Host,
            native_timelines: backend != BackendKind::Cuda,
            binary_semaphores: backend == BackendKind::Vulkan,
            exports: exports.to_vec(),
            imports: imports.to_vec(),
            ..Capabilities::default()
        },
    };
    let id = PartyId {
        process: process(in_process),
        device,
    };
    Party::described(id, &info)
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        2 => Just(Kind::Threads),
        2 => Just(Kind::Workers),
        4 => (1..3_u8).prop_map(Kind::Cuda),
        1 => (1..3_u8).prop_map(Kind::Older),
        1 => Just(Kind::Partition(1)),
        4 => (1..3_u8).prop_map(Kind::Vulkan),
        1 => Just(Kind::Software),
        1 => Just(Kind::Silent),
    ]
}

fn needs() -> impl Strategy<Value = Needs> {
    let rarely = |need: Needs| {
        proptest::bool::weighted(0.12)
            .prop_map(move |asks| if asks { need } else { Needs::empty() })
    };
    let doing = prop_oneof![
        3 => Just(Needs::SIGNAL),
        3 => Just(Needs::WAIT),
        2 => Just(Needs::SIGNAL | Needs::WAIT),
        1 => Just(Needs::HOST_ACCESS),
    ];
    let others = [
        Needs::HOST_ACCESS,
        Needs::TIMESTAMPS,
        Needs::CROSS_PROCESS,
        Needs::NATIVE,
        Needs::RAW,
        Needs::MEMORY,
        Needs::TIMELINE,
        Needs::BINARY,
    ];
    let avoided = Mechanism::ALL.map(|mechanism| rarely(mechanism.avoided()));
    // Most parties avoid nothing.
    let avoids = proptest::bool::weighted(0.2);
    (doing, others.map(rarely), avoided, avoids).prop_map(|(doing, others, avoided, avoids)| {
        let avoided = avoided.into_iter().filter(|_| avoids);
        others.into_iter().chain(avoided).fold(doing, |a, b| a | b)
    })
}

/// Parties with needs. A party may appear several times.
fn statements() -> impl Strategy<Value = Vec<Party>> {
    let fleet = proptest::collection::vec((kinds(), 1..4_u32), 1..5);
    let said = proptest::collection::vec((0..5_usize, needs()), 0..7);
    (fleet, said).prop_map(|(fleet, said)| {
        let of = |(which, needs): (usize, Needs)| {
            let at = which % fleet.len();
            let (kind, process) = fleet[at];
            // Most parties are in process 1.
            let process = if process == 3 { 2 } else { 1 };
            party(kind, process, at as u64 + 1).needing(needs)
        };
        said.into_iter().map(of).collect()
    })
}

/// The needs that avoid a mechanism.
const AVOIDED: Needs = Needs::NO_SAME_DEVICE
    .union(Needs::NO_EXTERNAL_TIMELINE)
    .union(Needs::NO_EXTERNAL_BINARY)
    .union(Needs::NO_SHARED_MEMORY)
    .union(Needs::NO_ENGINE)
    .union(Needs::NO_BRIDGE);

/// True if a party of the plan still waits once the party `of` gives up the need `without`.
fn still_waits(plan: &Plan, of: PartyId, without: Needs) -> bool {
    let asks = Needs::WAIT | Needs::HOST_ACCESS;
    plan.parties().iter().any(|party| {
        let left = match party.id() == of {
            true => party.needs() - without,
            false => party.needs(),
        };
        left.intersects(asks)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn order_and_grouping_change_nothing(said in statements(), shuffled in any::<u64>(), cut in any::<u64>()) {
        let whole: Requirements = said.iter().cloned().collect();
        let mut order: Vec<usize> = (0..said.len()).collect();
        order.sort_by_key(|at| (shuffled.rotate_left(*at as u32 * 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (mut left, mut right) = (Requirements::new(), Requirements::new());
        for at in order {
            let one = said[at].clone();
            // Some parties are added twice, to both groups.
            let word = cut >> (2 * at);
            if word & 1 == 0 { left = left.and(one.clone()); } else { right = Requirements::from(one.clone()).and(right); }
            if word & 2 != 0 { left = left.and(one); }
        }
        let (there, back) = (left.clone().and(right.clone()), right.and(left));
        prop_assert_eq!(&there, &whole);
        prop_assert_eq!(&back, &whole);
        prop_assert_eq!(negotiate(there), negotiate(whole));
    }

    #[test]
    fn a_plan_serves_all_parties_and_detects_any_change(said in statements()) {
        let whole: Requirements = said.iter().cloned().collect();
        let Ok(plan) = negotiate(whole.clone()) else { return Ok(()) };
        for asked in &said {
            let party = plan.party(asked.id()).unwrap();
            let nothing = plan.duty_of(party) == Duty::Nothing;
            prop_assert!(party.needs().contains(asked.needs()));
            let may = |permission: &[Permission]| permission.contains(&party.permission());
            if asked.needs().contains(Needs::SIGNAL) {
                prop_assert!(may(&[Permission::SignalOnly, Permission::Both]));
            }
            if asked.needs().intersects(Needs::WAIT | Needs::HOST_ACCESS) {
                prop_assert!(may(&[Permission::WaitOnly, Permission::Both]));
            }
            if asked.needs().contains(Needs::NATIVE) {
                prop_assert!(plan.mechanism().is_native());
                prop_assert!(!(asked.is_device() && nothing), "{}", plan);
            }
            if asked.needs().contains(Needs::BINARY) {
                prop_assert!(matches!(plan.mechanism(), Mechanism::ExternalBinary | Mechanism::SameDevice));
            }
            if asked.needs().contains(Needs::RAW) && asked.backend().is_some_and(|b| b != BackendKind::Host) {
                prop_assert!(!nothing, "{}", plan);
            }
            if asked.needs().contains(Needs::TIMESTAMPS) {
                prop_assert!(plan.has_timestamps());
            }
            prop_assert!(!asked.needs().contains(plan.mechanism().avoided()), "{}", plan);
        }
        let duties = || plan.parties().iter().map(|party| (party, plan.duty_of(party)));
        let makers = duties().filter(|(_, duty)| matches!(duty, Duty::Make | Duty::Export(_))).count();
        prop_assert!(makers == 1 || plan.mechanism() == Mechanism::Bridge, "{} makers: {}", makers, plan);
        for (importer, _) in duties().filter(|(_, duty)| matches!(duty, Duty::Import(_))) {
            if plan.mechanism() != Mechanism::SharedMemory {
                prop_assert_eq!(importer.uuid(), plan.home().uuid());
            }
        }
        let avoids = plan.parties().iter().any(|party| party.needs().intersects(AVOIDED));
        for party in plan.parties() {
            prop_assert!(plan.check(party).is_ok());
            // `check` refuses a party with other needs than in the plan.
            let other = party.clone().needing(Needs::all() - party.needs());
            prop_assert!(plan.check(&other).is_err());
            let (needs, id) = (party.needs(), party.id());
            // Without one of `others`, the object is of another kind or stays in the process. If a
            // mechanism is avoided, there may be no plan for that.
            let others = match avoids {
                true => Needs::empty(),
                false => Needs::CROSS_PROCESS | Needs::BINARY,
            };
            let eased = Needs::NATIVE | Needs::RAW | Needs::TIMESTAMPS | Needs::MEMORY | Needs::HOST_ACCESS | AVOIDED | others;
            for easing in eased {
                let doing = Needs::SIGNAL | Needs::WAIT | Needs::HOST_ACCESS;
                let does = (needs - easing).intersects(doing);
                if needs.contains(easing) && does && still_waits(&plan, id, easing) {
                    let eased = whole.without(id, easing);
                    prop_assert!(negotiate(eased).is_ok(), "no plan without {} of {}: {}", easing, party, plan);
                }
            }
        }
        // `check` detects another mechanism and another home.
        for mechanism in Mechanism::ALL {
            for home in 0..plan.parties().len() {
                let forged = plan.clone().forged(mechanism, home);
                let is_true = mechanism == plan.mechanism() && forged.home().id() == plan.home().id();
                prop_assert_eq!(forged.check(forged.home()).is_ok(), is_true);
            }
        }
        if plan.is_binary() {
            let may = |permission| {
                let both = |party: &&Party| [permission, Permission::Both].contains(&party.permission());
                plan.parties().iter().filter(both).count()
            };
            let (signal, wait) = (may(Permission::SignalOnly), may(Permission::WaitOnly));
            prop_assert_eq!((signal, wait), (1, 1), "{}", plan);
        }
        if plan.mechanism() == Mechanism::Bridge {
            prop_assert!(plan.parties().len() > 1, "a bridge with one side: {}", plan);
        }
    }

    #[test]
    fn a_conflict_names_all_parties_and_obstacles(said in statements()) {
        let whole: Requirements = said.iter().cloned().collect();
        let Err(conflict) = negotiate(whole.clone()) else { return Ok(()) };
        prop_assert_eq!(conflict.parties(), whole.parties());
        let text = conflict.to_string();
        for party in whole.parties() {
            let side = format!("{party}: {}", party.needs());
            prop_assert!(text.contains(&side));
        }
        if conflict.clashes().is_empty() {
            prop_assert_eq!(conflict.refused().len(), Mechanism::ALL.len());
            for (mechanism, obstacles) in conflict.refused() {
                prop_assert!(!obstacles.is_empty(), "{} is refused without a reason", mechanism);
            }
        }
        for way in conflict.ways() {
            let plan = negotiate(whole.without(way.party, way.need));
            prop_assert_eq!(plan.map(|plan| plan.mechanism()), Ok(way.mechanism));
        }
    }
}

fn expect(parties: impl Into<Requirements>, mechanism: Mechanism) -> Plan {
    let plan = negotiate(parties).unwrap_or_else(|conflict| panic!("{conflict}"));
    assert_eq!(plan.mechanism(), mechanism, "{plan}");
    plan
}

fn refused(parties: impl Into<Requirements>) -> Conflict {
    negotiate(parties).map_or_else(|conflict| conflict, |plan| panic!("{plan}"))
}

#[test]
fn each_mechanism_is_chosen_where_it_fits_best() {
    let cuda = party(Kind::Cuda(1), 1, 1);
    let vulkan = party(Kind::Vulkan(1), 1, 2);
    let workers = party(Kind::Workers, 1, 3);
    let threads = party(Kind::Threads, 1, 0);
    let software = party(Kind::Software, 1, 4);

    let one = expect(
        [cuda.clone().signals(), threads.clone().waits()],
        Mechanism::SameDevice,
    );
    assert_eq!(one.home().id(), cuda.id());
    assert_eq!(one.duty_of(&threads), Duty::Nothing);

    let shared = expect(
        [cuda.clone().signals(), vulkan.clone().waits()],
        Mechanism::ExternalTimeline,
    );
    assert_eq!(
        shared.home().id(),
        vulkan.id(),
        "Vulkan exports, even if CUDA signals"
    );
    let imports = Some("imports it as timeline-opaque-fd".into());
    assert_eq!(shared.duty(cuda.id()), imports);
    let permission = |party: &Party| shared.permission(party.id());
    assert_eq!(permission(&cuda), Some(Permission::SignalOnly));
    assert_eq!(permission(&vulkan), Some(Permission::WaitOnly));
    assert_eq!(permission(&workers), None);
    assert!(!shared.crosses_processes());
    assert_eq!(shared.next_best(), Some(Mechanism::Engine));

    let once = vulkan.clone().signals().needing(Needs::BINARY);
    expect([once, cuda.clone().waits()], Mechanism::ExternalBinary);
    expect(
        [software.clone().signals(), cuda.clone().waits()],
        Mechanism::Engine,
    );
    expect(
        [workers.clone().signals(), cuda.clone().waits()],
        Mechanism::Engine,
    );
    let native = cuda.clone().waits().natively();
    expect([workers.clone().signals(), native], Mechanism::SharedMemory);
    let far = party(Kind::Cuda(2), 1, 5).waits();
    expect([cuda.clone().signals(), far], Mechanism::SharedMemory);
    let raw = |party: &Party| party.clone().needing(Needs::RAW);
    expect(
        [raw(&software).signals(), raw(&vulkan).waits()],
        Mechanism::Bridge,
    );

    let elsewhere = party(Kind::Vulkan(1), 2, 1);
    let far = expect(
        [cuda.clone().signals(), elsewhere.waits()],
        Mechanism::ExternalTimeline,
    );
    assert!(far.crosses_processes());
    let hosts = [threads.signals(), party(Kind::Threads, 2, 0).waits()];
    expect(hosts, Mechanism::SharedMemory);
    let hosts = [software.signals(), party(Kind::Threads, 2, 0).waits()];
    expect(hosts, Mechanism::Bridge);
}

/// A process that signals by two CUDA devices cannot read the value.
///
/// A CUDA device cannot read the value of an imported semaphore, and knows only its own signals.
#[test]
fn a_signalling_process_must_be_able_to_read_the_value() {
    let waits = party(Kind::Vulkan(1), 1, 1).waits();
    let [signals, beside] = [2, 3].map(|device| party(Kind::Cuda(1), 2, device));
    let (signals, beside) = (signals.signals(), beside.waits());
    expect(
        [waits.clone(), signals.clone()],
        Mechanism::ExternalTimeline,
    );
    let plan = expect(
        [waits.clone(), signals.clone(), beside.clone()],
        Mechanism::Bridge,
    );
    assert!(
        plan.to_string()
            .contains("can read the value of the timeline"),
        "{plan}"
    );
    // In the exporter's process the exporter reads the value, elsewhere any Vulkan device does.
    let reader = party(Kind::Vulkan(1), 2, 4).waits();
    expect(
        [waits, signals.clone(), beside.clone(), reader],
        Mechanism::ExternalTimeline,
    );
    let elsewhere = party(Kind::Cuda(1), 1, 5).waits();
    expect([signals, beside, elsewhere], Mechanism::SharedMemory);
}

/// Avoids each chosen mechanism in turn. Each plan uses the next best of the plan before.
#[test]
fn avoiding_a_mechanism_gives_the_next_best() {
    let sides = [
        party(Kind::Cuda(1), 1, 1).signals(),
        party(Kind::Vulkan(1), 1, 2).waits(),
    ];
    let mut all = Vec::new();
    let mut next = None;
    let [left, mut right] = sides;
    let conflict = loop {
        match negotiate([left.clone(), right.clone()]) {
            Ok(plan) => {
                let mechanism = plan.mechanism();
                assert!(next.is_none_or(|next| next == Some(mechanism)), "{plan}");
                next = Some(plan.next_best());
                all.push(mechanism);
                right = right.avoiding(mechanism);
            }
            Err(conflict) => break conflict,
        }
    };
    assert_eq!(
        all,
        [
            Mechanism::ExternalTimeline,
            Mechanism::Engine,
            Mechanism::Bridge
        ]
    );
    assert_eq!(next, Some(None));
    let said = conflict.to_string();
    assert!(said.contains(&format!("{right} avoids it")), "{said}");
    assert_eq!(conflict.ways().len(), 3, "{conflict}");
    let all = Mechanism::ALL.map(Mechanism::avoided);
    assert!(all.into_iter().eq(AVOIDED), "each has its own need");
}

#[test]
fn a_conflict_states_what_is_incompatible() {
    assert!(refused([]).to_string().contains("there is no party"));
    let idle = party(Kind::Cuda(1), 1, 9).needing(Needs::RAW);
    assert!(
        refused([idle])
            .to_string()
            .contains("does not say whether it signals, waits or asks")
    );
    let cuda = party(Kind::Cuda(1), 1, 1);
    assert!(
        refused([cuda.clone().signals()])
            .to_string()
            .contains("no party waits")
    );
    assert!(
        refused([cuda.clone().waits()])
            .to_string()
            .contains("no party signals")
    );

    let other = party(Kind::Vulkan(2), 1, 2).waits().natively();
    let conflict = refused([cuda.clone().signals(), other.clone()]);
    let text = conflict.to_string();
    for part in [
        "they are different GPUs",
        "wants no host in between",
        "the engine on the host would serve all, but for one need: vulkan Vulkan(2) #2 of process 1 wants no host in between",
    ] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    let ways: Vec<_> = conflict
        .ways()
        .iter()
        .map(|way| (way.party, way.need))
        .collect();
    assert_eq!(ways, [(other.id(), Needs::NATIVE)]);

    let silent = party(Kind::Silent, 1, 3).signals();
    let conflict = refused([silent, cuda.clone().waits().needing(Needs::TIMESTAMPS)]);
    assert!(
        conflict.to_string().contains("writes no times"),
        "{conflict}"
    );

    let kinds = [
        cuda.clone().signals().needing(Needs::TIMELINE),
        party(Kind::Vulkan(1), 1, 2).waits().needing(Needs::BINARY),
    ];
    assert_eq!(refused(kinds).ways().len(), 2);

    let two = [
        cuda.clone().signals(),
        party(Kind::Cuda(1), 2, 1).signals().waits(),
    ];
    assert!(
        refused(two)
            .to_string()
            .contains("one timeline for each direction")
    );

    let impostor = party(Kind::Vulkan(1), 1, 1).waits();
    assert!(
        refused([cuda.signals(), impostor])
            .to_string()
            .contains("described in two ways")
    );

    let partition = party(Kind::Partition(1), 1, 1).signals().natively();
    let conflict = refused([partition, party(Kind::Vulkan(1), 1, 2).waits()]);
    assert!(
        conflict
            .to_string()
            .contains("a partition, which Vulkan cannot reach"),
        "{conflict}"
    );
}

/// Each mechanism, as it is written in a sentence.
const PHRASES: [(Mechanism, &str); Mechanism::ALL.len()] = [
    (Mechanism::SameDevice, "the device's own objects"),
    (
        Mechanism::ExternalTimeline,
        "an external timeline semaphore (exported by Vulkan)",
    ),
    (
        Mechanism::ExternalBinary,
        "an external binary semaphore (exported by Vulkan)",
    ),
    (Mechanism::SharedMemory, "a counter in shared memory"),
    (Mechanism::Engine, "the engine on the host"),
    (Mechanism::Bridge, "a bridge through the host"),
];

/// Every text that names a mechanism or a need, with each mechanism and each need.
/// Two devices of Vulkan share a timeline, also if one of them cannot share memory.
#[test]
fn memory_in_common_is_needed_only_if_it_is_shared() {
    let whole = party(Kind::Vulkan(1), 1, 1).signals();
    let without = party(Kind::NoMemory(1), 1, 2).waits().natively();
    expect(
        [whole.clone(), without.clone()],
        Mechanism::ExternalTimeline,
    );
    let conflict = refused([whole.needing(Needs::MEMORY), without]);
    let text = conflict.to_string();
    assert!(
        text.contains("NoMemory(1) #2 of process 1 imports no memory"),
        "{text}"
    );
}

/// With a counter in shared memory, a CUDA device is the home, and makes the memory.
#[test]
fn memory_of_cuda_goes_to_another_process_of_its_gpu() {
    let sides = |one: Kind, other: Kind| {
        let signals = party(one, 1, 1).signals().needing(Needs::MEMORY);
        [signals, party(other, 2, 1).waits().needing(Needs::MEMORY)]
    };
    let threads = party(Kind::Threads, 1, 0).waits();
    for (sides, home) in [
        (sides(Kind::Cuda(1), Kind::Cuda(1)), 1),
        (sides(Kind::Older(1), Kind::Cuda(1)), 2),
    ] {
        let all = Requirements::from(sides).and(threads.clone());
        let plan = expect(all, Mechanism::SharedMemory);
        assert!(plan.home().is_driven());
        assert_eq!(plan.home().id().process, process(home));
    }
    for (other, reason) in [
        (Kind::Cuda(2), "they are different GPUs"),
        (Kind::Workers, "imports no memory"),
    ] {
        let text = refused(sides(Kind::Cuda(1), other)).to_string();
        assert!(text.contains(reason), "{text}");
    }
    let text = refused(sides(Kind::Older(1), Kind::Older(1))).to_string();
    assert!(
        text.contains("no device memory goes to another process"),
        "{text}"
    );
}

#[test]
fn texts_are_sentences_with_every_mechanism_and_need() {
    assert_eq!(PHRASES.map(|(mechanism, _)| mechanism), Mechanism::ALL);
    let sides = [
        party(Kind::Vulkan(1), 1, 1).signals(),
        party(Kind::Vulkan(1), 1, 2).waits(),
    ];
    let second = sides[1].clone();
    let requirements = Requirements::from(sides.clone());
    let plan = negotiate(requirements.clone()).unwrap();
    for (mechanism, phrase) in PHRASES {
        for (need, words) in Needs::WORDS {
            let way = Way {
                party: second.id(),
                need,
                mechanism,
            };
            let refused = vec![(mechanism, vec!["a reason".into()])];
            let conflict = Conflict::new(requirements.clone(), Vec::new(), refused, vec![way]);
            let expected = format!(
                "no synchronization object serves all parties:\
                 \n    vulkan Vulkan(1) #1 of process 1: signals\
                 \n    vulkan Vulkan(1) #2 of process 1: waits\
                 \n  {phrase}: a reason\
                 \n  {phrase} would serve all, but for one need: vulkan Vulkan(1) #2 of process 1 {words}"
            );
            assert_eq!(conflict.to_string(), expected);
        }
        let forged = plan.clone().forged(mechanism, 0);
        let text = forged.to_string();
        assert!(
            text.starts_with(&format!("{phrase}: both are GPU ")),
            "{text}"
        );
        let refused = forged.cannot("timeline", "a reason".into()).to_string();
        let expected = format!("cannot be made with {phrase}: a reason");
        assert!(refused.ends_with(&expected), "{refused}");
        let Err(differs) = forged.check(&second) else {
            assert_eq!(mechanism, plan.mechanism());
            continue;
        };
        let expected =
            format!("the plan says {phrase}, but the answer to what these parties need is ");
        assert!(differs.to_string().contains(&expected), "{differs}");
    }
}

/// Two devices may have the same name, so every text adds the number of the device.
#[test]
fn texts_name_every_device_with_its_number() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    for _ in 0..4_000 {
        let said = statements().new_tree(&mut runner).unwrap().current();
        let names: Vec<String> = said
            .iter()
            .filter(|party| party.is_device())
            .map(|party| party.name().to_owned())
            .collect();
        let text = match negotiate(said.into_iter().collect::<Requirements>()) {
            Ok(plan) => plan.to_string(),
            Err(conflict) => conflict.to_string(),
        };
        for name in &names {
            for (at, _) in text.match_indices(name.as_str()) {
                let behind = &text[at + name.len()..];
                assert!(behind.starts_with(" #"), "{name}: {text}");
            }
            // The name never appears without its API in front.
            let (_, bare) = name.split_once(' ').unwrap_or(("", name));
            assert_eq!(
                text.matches(bare).count(),
                text.matches(name.as_str()).count(),
                "{bare}: {text}"
            );
        }
    }
}

#[test]
fn devices_of_one_api_without_a_common_handle_are_counted() {
    let cuda = |device| party(Kind::Cuda(1), 1, device);
    let all = [
        cuda(1).signals().natively(),
        cuda(2).waits(),
        cuda(3).waits().needing(Needs::NO_SHARED_MEMORY),
    ];
    let text = refused(all).to_string();
    assert!(
        text.contains("3 cuda devices share no native timeline"),
        "{text}"
    );
}

/// The properties above test nothing that the strategy never generates.
#[test]
fn generated_statements_lead_to_every_result() {
    use std::collections::BTreeMap;

    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut answers = BTreeMap::<String, usize>::new();
    for _ in 0..16_000 {
        let said = statements().new_tree(&mut runner).unwrap().current();
        let answer = match negotiate(said.into_iter().collect::<Requirements>()) {
            Ok(plan) => format!("{:?}", plan.mechanism()),
            Err(conflict) if conflict.clashes().is_empty() => "refused by each".into(),
            Err(_) => "clash".into(),
        };
        *answers.entry(answer).or_default() += 1;
    }
    let known = Mechanism::ALL
        .iter()
        .map(|mechanism| format!("{mechanism:?}"));
    for answer in known.chain(["refused by each".into(), "clash".into()]) {
        let drawn = answers.get(&answer).copied().unwrap_or(0);
        assert!(drawn >= 10, "{drawn} times {answer}: {answers:?}");
    }
}

/// The ids of three processes, in each order.
const ORDERS: [[u32; 3]; 6] = [
    [5, 6, 7],
    [5, 7, 6],
    [6, 5, 7],
    [6, 7, 5],
    [7, 5, 6],
    [7, 6, 5],
];

/// Adds endpoints that connect three processes in a chain. The one in the middle has both.
fn chained(ids: [u32; 3], needs: Requirements) -> Requirements {
    let [one, middle, other] = ids.map(process);
    needs.linked(one, middle).linked(other, middle)
}

/// In a chain of three processes, the process in the middle is the home whatever its id is.
///
/// Only that process has an endpoint to each of the others.
#[rstest]
#[case::workers([Kind::Workers; 3], Mechanism::SharedMemory)]
#[case::threads([Kind::Threads; 3], Mechanism::SharedMemory)]
#[case::cuda([Kind::Cuda(1); 3], Mechanism::SharedMemory)]
#[case::vulkan([Kind::Vulkan(1); 3], Mechanism::ExternalTimeline)]
#[case::software_at_both_ends([Kind::Software, Kind::Workers, Kind::Software], Mechanism::Bridge)]
#[case::software_at_one_end([Kind::Workers, Kind::Threads, Kind::Software], Mechanism::Bridge)]
fn the_home_has_an_endpoint_to_all_other_processes(
    #[case] kinds: [Kind; 3],
    #[case] mechanism: Mechanism,
) {
    for ids in ORDERS {
        for signals in 0..3 {
            let parties = [0, 1, 2].map(|at| {
                let device = u64::from(kinds[at] != Kind::Threads);
                let party = party(kinds[at], ids[at], device);
                match at == signals {
                    true => party.signals(),
                    false => party.waits(),
                }
            });
            let plan = negotiate(chained(ids, parties.clone().into())).unwrap();
            assert_eq!(plan.mechanism(), mechanism);
            assert_eq!(plan.home().id().process, process(ids[1]), "{plan}");
            plan.check(&parties[0]).unwrap();
            let [one, middle, other] = parties;
            let again = chained(ids, [other, one, middle].into());
            assert_eq!(negotiate(again).unwrap(), plan);
        }
    }
}

/// Only one end of the chain can export. It has no endpoint to the other end.
#[test]
fn an_exporter_without_an_endpoint_to_all_is_not_the_home() {
    for ids in ORDERS {
        let ends = [
            party(Kind::Vulkan(1), ids[0], 1).signals(),
            party(Kind::Cuda(1), ids[1], 1).waits(),
            party(Kind::Cuda(1), ids[2], 1).waits(),
        ];
        let plan = negotiate(chained(ids, ends.clone().into())).unwrap();
        assert_eq!(plan.mechanism(), Mechanism::Bridge);
        let text = plan.to_string();
        let [one, _, other] = ids.map(process);
        let lacking = format!("{one} has reported no endpoint to {other}");
        assert!(text.contains(&lacking), "{text}");
        // If no process has reported its endpoints, each may be the home.
        expect(ends, Mechanism::ExternalTimeline);
    }
}

/// The process in the middle connects the others and is no party.
#[test]
fn processes_that_only_a_third_connects_get_no_plan() {
    for ids in ORDERS {
        let parties = [
            party(Kind::Workers, ids[0], 1).signals(),
            party(Kind::Workers, ids[2], 1).waits(),
        ];
        let conflict = negotiate(chained(ids, parties.into())).unwrap_err();
        let text = conflict.to_string();
        let [one, _, other] = ids.map(process);
        for (from, to) in [(one, other), (other, one)] {
            let lacking = format!("{from} has reported no endpoint to {to}");
            assert!(text.contains(&lacking), "{text}");
        }
    }
}

/// X1: all processes have endpoints to each other. Only the leaf can export, so it must report its
/// endpoint to the third process.
#[test]
fn a_leaf_that_reports_its_endpoints_may_be_the_home() {
    let [hub, leaf, other] = [5, 6, 7].map(process);
    let parties = [
        party(Kind::Cuda(1), 5, 1).waits(),
        party(Kind::Vulkan(1), 6, 1).signals().natively(),
        party(Kind::Cuda(1), 7, 1).waits(),
    ];
    let reported = Requirements::from(parties).linked(hub, leaf);
    let reported = reported.linked(hub, other);
    let refused = negotiate(reported.clone()).unwrap_err().to_string();
    let lacking = format!("{leaf} has reported no endpoint to {other}");
    assert!(refused.contains(&lacking), "{refused}");
    let plan = negotiate(reported.linked(leaf, other)).unwrap();
    assert_eq!(plan.mechanism(), Mechanism::ExternalTimeline);
    assert_eq!(plan.home().id().process, leaf);
}
