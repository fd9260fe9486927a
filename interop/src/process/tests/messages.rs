//! Encoding and decoding of messages.

use proptest::prelude::*;
use syncline_core::{
    handle::HandleKind,
    image::{ImageInfo, ImageType, ImageUsage},
    info::{BackendKind, Capabilities, Info, Uuid},
};

use crate::negotiate::{Needs, Party, PartyId, Process};
use crate::process::extent::{Extent, Resource};
use crate::process::hostile::{elsewhere, image, offer, samples};
use crate::process::message::{
    Content, HEADER, MAGIC, MAX_DESCRIPTORS, MAX_MESSAGE, Message, Offer, POINT_MESSAGE, VERSION,
};
use crate::process::parties::{MAX_PARTIES, handle_number};
use crate::process::wire::{TooMuch, digest, shortened};

fn encoded(message: &Message, sequence: u64) -> Vec<u8> {
    let mut buffer = vec![0; MAX_MESSAGE];
    let length = message.encode(sequence, &mut buffer).unwrap();
    buffer.truncate(length);
    buffer
}

fn refused(bytes: &[u8], expected: &str) {
    let found = Message::decode(bytes).unwrap_err();
    assert!(found.expected.contains(expected), "{found:?}");
}

#[test]
fn every_message_is_decoded_as_it_was_encoded() {
    for (sequence, message) in (7..).zip(samples()) {
        let bytes = encoded(&message, sequence);
        assert_eq!(Message::decode(&bytes).unwrap(), (sequence, message));
    }
}

/// The format that the module documents, for readers that do not use this library.
#[test]
fn the_bytes_of_a_point_are_fixed() {
    let bytes = encoded(
        &Message::Point {
            number: 0x0102_0304,
            value: 0x1122,
        },
        5,
    );
    let expected = [
        &b"SYNL"[..],
        &[6, 0, 7, 0, 12, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0],
        &[4, 3, 2, 1, 0x22, 0x11, 0, 0, 0, 0, 0, 0],
    ];
    assert_eq!(bytes, expected.concat());
    assert_eq!(bytes.len(), POINT_MESSAGE);
    assert_eq!((MAGIC, VERSION, HEADER), (*b"SYNL", 6, 20));
}

#[test]
fn the_numbers_of_handle_kinds_are_fixed() {
    let kinds = [
        HandleKind::TimelineOpaqueFd,
        HandleKind::BinaryOpaqueFd,
        HandleKind::MemoryOpaqueFd,
        HandleKind::CounterMemfd,
        HandleKind::WordsMemfd,
        HandleKind::PollableFd,
        HandleKind::SyncFd,
    ];
    assert_eq!(kinds, HandleKind::ALL);
    for (number, kind) in (1..).zip(kinds) {
        assert_eq!(handle_number(kind), number, "{kind:?}");
    }
}

#[test]
fn a_message_truncated_anywhere_is_refused() {
    for message in samples() {
        let bytes = encoded(&message, 0);
        for length in 0..bytes.len() {
            assert!(
                Message::decode(&bytes[..length]).is_err(),
                "{length} of {message:?}"
            );
            // Also if the header states the truncated length.
            if let Some(body) = length.checked_sub(HEADER) {
                let mut cut = bytes[..length].to_vec();
                cut[8..12].copy_from_slice(&u32::try_from(body).unwrap().to_le_bytes());
                assert!(Message::decode(&cut).is_err(), "{length} of {message:?}");
            }
        }
        let mut longer = bytes.clone();
        longer.push(0);
        refused(&longer, "as many bytes");
        let length = u32::try_from(longer.len() - HEADER).unwrap();
        longer[8..12].copy_from_slice(&length.to_le_bytes());
        refused(&longer, "the end of the message");
    }
}

#[test]
fn wrong_headers_and_values_are_refused() {
    let point = encoded(
        &Message::Point {
            number: 1,
            value: 1,
        },
        0,
    );
    let with = |at: usize, byte: u8| {
        let mut bytes = point.clone();
        bytes[at] = byte;
        bytes
    };
    refused(&with(0, b'X'), "of this library");
    refused(&with(4, 5), "version 6");
    refused(&with(4, 7), "version 6");
    refused(&with(6, 0), "known kind");
    refused(&with(6, 11), "known kind");
    refused(&with(8, 13), "as many bytes");
    let value = Message::Point {
        number: 1,
        value: u64::MAX,
    };
    refused(&encoded(&value, 0), "a value below");
    refused(&[b'x'; MAX_MESSAGE + 1], "at most 16384 bytes");
    refused(&[], "of this library");
}

/// A message of this kind with the given bytes as its body.
fn body(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    let header = [b"SYNL".as_slice(), &[6, 0, kind, 0], &length, &[0; 8]];
    [header.concat(), body].concat()
}

const PROCESS: &[u8] = &[9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn every_field_is_bounded_and_checked() {
    let hello = |label: &[u8]| {
        let length = u16::try_from(label.len()).unwrap().to_le_bytes();
        body(1, &[PROCESS, &length, label])
    };
    assert!(Message::decode(&hello(b"label")).is_ok());
    assert!(Message::decode(&hello(&[b'x'; 64])).is_ok());
    refused(&hello(&[b'x'; 65]), "a label");
    refused(&hello(b"\xff\xfe"), "a label");
    refused(&hello(b"two\nlines"), "a label");
    refused(&hello("del\u{7f}".as_bytes()), "a label");
    refused(&body(1, &[PROCESS, &[200, 0], b"short"]), "a label");
    refused(&body(1, &[&[0; 12], &[0, 0]]), "the id of a process");
    refused(&body(1, &[&[255; 12], &[0, 0]]), "the id of a process");

    let party = |backend: u8, device: u8, exports: u16, needs: u8| {
        let [low, high] = exports.to_le_bytes();
        let device = [device, 0, 0, 0, 0, 0, 0, 0];
        let id = [PROCESS, &device, &[backend], &[0, 0]].concat();
        // The last byte stands for no links.
        let rest = [0, 0, 0, low, high, 0, 0, 1, needs, 0, 0x80 & needs, 0, 0];
        body(2, &[&[1, 0, 0, 0, 1, 1], &id, &rest])
    };
    assert!(Message::decode(&party(1, 3, 0b1000, 3)).is_ok());
    refused(&party(4, 3, 0, 3), "a known backend");
    refused(&party(0, 3, 0, 3), "a device and its backend");
    refused(&party(1, 0, 0, 3), "a device and its backend");
    refused(&party(1, 3, 1 << 12, 3), "a known kind of handle");
    refused(&party(1, 3, 0, 0x80), "known needs");
    refused(&body(2, &[&[1, 0, 0, 0, 1, 33]]), "at most 32 parties");
    let links = body(2, &[&[1, 0, 0, 0, 1, 0, 33]]);
    refused(&links, "at most 32 endpoints");
    refused(
        &body(2, &[&[1, 0, 0, 0, 2, 0]]),
        "whether requirements are all",
    );

    let withdrawn = |length: u16| {
        let reason = vec![b'x'; length.into()];
        body(10, &[&[1, 0, 0, 0], &length.to_le_bytes(), &reason])
    };
    assert!(Message::decode(&withdrawn(0)).is_ok());
    assert!(Message::decode(&withdrawn(256)).is_ok());
    refused(&withdrawn(257), "a reason");

    refused(&body(3, &[&[1, 0, 0, 0, 7, 0]]), "a known mechanism");
    refused(&body(3, &[&[1, 0, 0, 0, 4, 0]]), "a mechanism and a home");

    let object = |content: u8, initial: [u8; 8], reached: [u8; 8], rest: &[u8]| {
        body(4, &[&[1, 0, 0, 0, content, 0, 0], &initial, &reached, rest])
    };
    let (one, none) = ([1, 0, 0, 0, 0, 0, 0, 0], [0; 8]);
    assert!(Message::decode(&object(1, one, one, &[0, 0, 0, 0])).is_ok());
    refused(&object(6, one, one, &[0, 0, 0, 0]), "a known sort");
    refused(
        &object(1, one, none, &[0, 0, 0, 0]),
        "a value that has grown",
    );
    refused(&object(1, one, [255; 8], &[0, 0, 0, 0]), "a value below");
    refused(
        &object(1, one, one, &[17, 0, 0, 0]),
        "at most 16 descriptors",
    );
    refused(
        &object(1, one, one, &[1, 13, 0, 0]),
        "a known kind of handle",
    );
    refused(&object(1, one, one, &[0, 2, 0, 0]), "an origin or none");
    refused(&object(3, one, one, &[0, 0, 0, 0]), "an extent for memory");
    refused(&object(5, one, one, &[0, 0, 0, 0]), "a handle for an event");
    let extent = |size: u8, offset: u8, length: u8, dedicated: u8| {
        let numbers = [[size, 0, 0, 0, 0, 0, 0, 0], [offset, 0, 0, 0, 0, 0, 0, 0]].concat();
        let length = [length, 0, 0, 0, 0, 0, 0, 0];
        // A buffer, the memory type 0, and no event.
        [
            &[0, 0, 1],
            &numbers[..],
            &[0],
            &length,
            &[1, 0, dedicated, 0],
        ]
        .concat()
    };
    let memory = |content, extent: Vec<u8>| object(content, one, one, &extent);
    assert!(Message::decode(&memory(3, extent(8, 0, 8, 1))).is_ok());
    assert!(Message::decode(&memory(3, extent(8, 4, 4, 0))).is_ok());
    let numbers = [[8, 0, 0, 0, 0, 0, 0, 0], none].concat();
    let without_type = [&[0, 0, 1], &numbers[..], &[0], &one, &[0, 0, 0]].concat();
    assert!(Message::decode(&memory(3, without_type)).is_ok());
    refused(&memory(3, extent(8, 0, 9, 0)), "a size of memory");
    refused(&memory(3, extent(8, 0, 0, 0)), "a size of memory");
    refused(&memory(3, extent(8, 4, 8, 0)), "a size of memory");
    refused(&memory(3, extent(8, 4, 4, 1)), "memory from its start");
    refused(&memory(4, extent(8, 4, 4, 0)), "memory from its start");
}

/// An image that such a message cannot hold is refused before any call asks for it.
#[test]
fn images_are_checked_when_they_are_decoded() {
    let change = |change: &dyn Fn(&mut Extent)| {
        let mut object = image(1);
        change(object.extent.as_mut().unwrap());
        encoded(&Message::Object(object), 0)
    };
    let change_info = |of: &dyn Fn(&mut ImageInfo)| {
        change(&|extent| match &mut extent.resource {
            Resource::Image(info) => of(info),
            Resource::Buffer(_) => {}
        })
    };
    assert!(Message::decode(&change(&|_| {})).is_ok());
    // Only `VkDevice`s share an image with levels and layers. The plan lists the devices.
    assert!(Message::decode(&change_info(&|of| of.layers = 3)).is_ok());
    // Four levels of an image of 61 × 37 texels of 4 bytes.
    let least = 4 * (61 * 37 + 30 * 18 + 15 * 9 + 7 * 4);
    assert!(Message::decode(&change(&|of| of.size = least)).is_ok());
    refused(&change(&|of| of.size = least - 1), "a size of memory");
    refused(&change(&|of| of.offset = 1), "memory from its start");
    let far = |of: &mut Extent| (of.dedicated, of.offset) = (false, u64::MAX);
    refused(&change(&far), "a size of memory");
    let shared = "an image that can be shared";
    refused(&change_info(&|of| of.levels = u32::MAX), shared);
    refused(&change_info(&|of| of.levels = 0), shared);
    refused(&change_info(&|of| of.layers = 0), shared);
    refused(&change_info(&|of| of.image_type = ImageType::Cube), shared);
    refused(&change_info(&|of| of.extent.width = 0), shared);
    refused(&change_info(&|of| of.extent.depth = 2), shared);
    refused(
        &change_info(&|of| of.usage = ImageUsage::DEPTH_ATTACHMENT),
        shared,
    );
    let unknown = ImageUsage::from_bits_retain(1 << 31);
    refused(&change_info(&|of| of.usage = unknown), shared);
    let large = |of: &mut ImageInfo| (of.extent.width, of.extent.height) = (u32::MAX, u32::MAX);
    refused(&change_info(&large), "a size of memory");
    let (mut bytes, same) = (change(&|_| {}), change(&|_| {}));
    // The image begins behind the sizes: its type, then its format.
    let start = same.windows(4).position(|of| of == [37, 0, 0, 0]).unwrap();
    bytes[start] = 1;
    refused(&bytes, "a known format of images");
    bytes.clone_from(&same);
    bytes[start - 1] = 5;
    refused(&bytes, "a known type of images");
    bytes.clone_from(&same);
    bytes[start - 2] = 2;
    refused(&bytes, "whether it is an image");
    let words = Offer {
        content: Content::HostMemory,
        ..image(1)
    };
    refused(&encoded(&Message::Object(words), 0), "words of the host");
}

#[test]
fn too_large_messages_are_not_encoded() {
    let mut buffer = vec![0; MAX_MESSAGE];
    let party = || Party::threads_of(elsewhere());
    let mut encode = |parties: Vec<Party>| {
        let message = Message::Requirements {
            round: 1,
            is_all: true,
            parties,
            links: Vec::new(),
        };
        message.encode(0, &mut buffer)
    };
    let many = TooMuch {
        what: "parties",
        most: 32,
    };
    assert_eq!(encode(vec![party(); MAX_PARTIES + 1]), Err(many));
    assert_eq!(encode(vec![party(); 300]), Err(many));
    // Parties of the maximum size fit in one message.
    let longest = || {
        let mut longest = party().needing(Needs::all());
        longest.name = "x".repeat(256);
        longest.uuid = Some(Uuid([1; 16]));
        longest.driver_uuid = longest.uuid;
        longest
    };
    assert!(encode(vec![longest(); MAX_PARTIES]).is_ok());
    let mut longer = longest();
    longer.name.push('x');
    assert_eq!(encode(vec![longer]).unwrap_err().most, 256);
    let mut two_lines = longest();
    two_lines.name = "two\nlines".into();
    assert!(encode(vec![two_lines]).is_err());
    let info = Info {
        backend: BackendKind::Other("mine"),
        name: "mine".into(),
        vendor: String::new(),
        uuid: None,
        parent_uuid: None,
        driver_uuid: None,
        luid: None,
        driver: String::new(),
        software: false,
        capabilities: Capabilities::default(),
    };
    let id = PartyId {
        process: elsewhere(),
        device: 1,
    };
    assert!(encode(vec![Party::described(id, &info)]).is_err());
    let kinds = [HandleKind::CounterMemfd; MAX_DESCRIPTORS + 1];
    let object = Message::Object(offer(1, &kinds));
    let many = TooMuch {
        what: "descriptors",
        most: 16,
    };
    assert_eq!(object.encode(0, &mut buffer), Err(many));
    assert!(Message::Bye.encode(0, &mut [0; HEADER - 1]).is_err());
    assert!(
        Message::Taken { number: 1 }
            .encode(0, &mut [0; HEADER + 3])
            .is_err()
    );
}

#[test]
fn labels_and_reasons_are_shortened_to_one_line() {
    assert_eq!(shortened("two\nlines", 64), "two lines");
    assert_eq!(shortened(&"ä".repeat(40), 64), "ä".repeat(32));
    assert_eq!(shortened("xä", 2), "x");
    let label = "ä\n".repeat(100);
    let hello = Message::Hello {
        process: Process::this(),
        label,
    };
    let (_, read) = Message::decode(&encoded(&hello, 0)).unwrap();
    assert!(matches!(read, Message::Hello { label, .. } if label.len() <= 64));
}

#[test]
fn the_digest_is_fnv_1a() {
    // Test vectors of FNV-1a.
    assert_eq!(digest(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(digest(b"a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(digest(b"foobar"), 0x8594_4171_f739_67e8);
}

/// Every kind of handle has a number. A new kind needs one.
#[test]
fn every_kind_of_handle_can_be_sent() {
    let message = Message::Object(offer(1, HandleKind::ALL));
    assert_eq!(Message::decode(&encoded(&message, 0)).unwrap().1, message);
}

proptest! {
    #[test]
    fn a_decoded_message_is_encoded_as_the_same_bytes(
        which in 0..12_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = encoded(&samples()[which], 3);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok((sequence, message)) = Message::decode(&bytes) {
            prop_assert_eq!(encoded(&message, sequence), bytes);
        }
    }

    #[test]
    fn any_bytes_decode_to_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes_of_kind = body(1 + bytes.len() as u8 % 10, &[&bytes]);
        prop_assert!(Message::decode(&bytes).is_err());
        if let Ok((sequence, message)) = Message::decode(&bytes_of_kind) {
            prop_assert_eq!(encoded(&message, sequence), bytes_of_kind.clone());
        }
        bytes_of_kind.pop();
        prop_assert!(Message::decode(&bytes_of_kind).is_err());
    }
}
