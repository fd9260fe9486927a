//! Surfaces and textures, on a picture that shows where it is accessed.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rstest::rstest;
use syncline_software_ptx::{Fault, Geometry, Images};

use crate::common::{BASE, Memory, run};

/// The geometries of objects 1 to 5.
const GEOMETRIES: [Geometry; 5] = [
    Geometry::Row,
    Geometry::Plane,
    Geometry::Volume,
    Geometry::Rows,
    Geometry::Planes,
];

/// Objects of every geometry, with the same contents.
#[derive(Default)]
pub(crate) struct Picture {
    /// The bytes of surfaces that were stored.
    stored: Mutex<BTreeMap<[u32; 3], u8>>,
}

/// The bytes of a row, or the texels of a row of level 0.
const WIDTH: u32 = 40;

fn extent(object: u64, geometry: Geometry) -> Result<[u32; 3], Fault> {
    let index = usize::try_from(object).unwrap().wrapping_sub(1);
    if GEOMETRIES.get(index) != Some(&geometry) {
        return Err(Fault::Object { object });
    }
    Ok(match geometry {
        Geometry::Row => [WIDTH, 1, 1],
        Geometry::Plane => [WIDTH, 5, 1],
        Geometry::Rows => [WIDTH, 1, 3],
        Geometry::Volume | Geometry::Planes => [WIDTH, 5, 3],
    })
}

/// The byte of a surface that was never stored.
fn byte([x, y, z]: [u32; 3]) -> u8 {
    (x + 41 * y + 83 * z) as u8
}

impl Images for Picture {
    fn surface(&self, object: u64, geometry: Geometry) -> Result<[u32; 3], Fault> {
        extent(object, geometry)
    }

    fn load(&self, _: u64, [x, y, z]: [u32; 3], bytes: u32) -> Result<u64, Fault> {
        assert!(x % bytes == 0 && x + bytes <= WIDTH && y < 5 && z < 3);
        let stored = self.stored.lock().unwrap();
        let value = (x..x + bytes).rev().fold(0, |value, x| {
            let at = [x, y, z];
            let byte = stored.get(&at).copied().unwrap_or(byte(at));
            value << 8 | u64::from(byte)
        });
        Ok(value)
    }

    fn store(&self, _: u64, [x, y, z]: [u32; 3], bytes: u32, value: u64) -> Result<(), Fault> {
        assert!(x % bytes == 0 && x + bytes <= WIDTH && y < 5 && z < 3);
        assert!(bytes == 8 || value >> (8 * bytes) == 0);
        let mut stored = self.stored.lock().unwrap();
        for (x, byte) in (x..x + bytes).zip(value.to_le_bytes()) {
            stored.insert([x, y, z], byte);
        }
        Ok(())
    }

    fn texture(&self, object: u64, geometry: Geometry, level: u32) -> Result<[u32; 3], Fault> {
        let [width, height, depth] = extent(object, geometry)?;
        Ok(if level < 3 {
            [width >> level, height.min(5 - level), depth]
        } else {
            [0; 3]
        })
    }

    fn texel(&self, texture: u64, level: u32, [x, y, z]: [u32; 3]) -> Result<[u32; 4], Fault> {
        let [width, height, depth] =
            self.texture(texture, GEOMETRIES[texture as usize - 1], level)?;
        assert!(x < width && y < height && z < depth);
        Ok([x, y, z, 0xffff_ff00 + level])
    }
}

fn memory(words: usize) -> Memory {
    let mut memory = Memory::new(4 * words);
    memory.picture = Some(Picture::default());
    memory
}

/// Runs a kernel with one thread and these parameters: the memory, an object, x, y and z.
fn thread(memory: &Memory, body: &str, object: u64, at: [i32; 3]) -> Result<(), Fault> {
    let text = format!(
        ".version 7.8 .target sm_90 .address_size 64
        .entry f(.param .u64 to, .param .u64 o, .param .s32 x, .param .s32 y, .param .s32 z) {{
            .reg .b16 %h<5>; .reg .b32 %r<5>; .reg .b64 %d<5>; .reg .u64 %to, %o;
            .reg .s32 %x, %y, %z;
            ld.param.u64 %to, [to]; ld.param.u64 %o, [o];
            ld.param.s32 %x, [x]; ld.param.s32 %y, [y]; ld.param.s32 %z, [z];
            {body}
        }}"
    );
    let [x, y, z] = at.map(|at| u64::from(at.cast_unsigned()));
    run(&text, "f", [1; 3], [1; 3], &[BASE, object, x, y, z], memory)
}

/// The coordinates of each geometry as the instruction has them.
const COORDINATES: [(&str, &str); 5] = [
    ("1d", "%x"),
    ("2d", "{%x, %y}"),
    ("3d", "{%x, %y, %z, %z}"),
    ("a1d", "{%z, %x}"),
    ("a2d", "{%z, %x, %y, %y}"),
];

/// The place that an access to an object has at these coordinates.
fn place(object: u64, [x, y, z]: [u32; 3]) -> [u32; 3] {
    match object {
        1 => [x, 0, 0],
        2 => [x, y, 0],
        4 => [x, 0, z],
        _ => [x, y, z],
    }
}

#[test]
fn every_size_and_geometry_is_loaded_and_stored() {
    let at = [16, 3, 2];
    for (object, (geometry, coordinates)) in (1..).zip(COORDINATES) {
        for (ty, bytes, register) in [
            ("b8", 1, "h"),
            ("b8", 1, "r"),
            ("b16", 2, "h"),
            ("b32", 4, "r"),
            ("b64", 8, "d"),
        ] {
            for (vector, count) in [("", 1_u32), (".v2", 2), (".v4", 4)] {
                if bytes * count > 16 {
                    continue;
                }
                let list: Vec<String> = (0..count).map(|n| format!("%{register}{n}")).collect();
                let list = format!("{{{}}}", list.join(", "));
                // What is loaded there is stored two rows higher, with one byte changed.
                let memory = memory(0);
                let body = format!(
                    "suld.b.{geometry}.cg{vector}.{ty}.trap {list}, [%o, {coordinates}];
                    xor.b{size} %{register}0, %{register}0, 255;
                    sub.s32 %x, %x, 16; sub.s32 %y, %y, 2;
                    sust.b.{geometry}.cs{vector}.{ty}.trap [%o, {coordinates}], {list};",
                    size = match register {
                        "h" => 16,
                        "r" => 32,
                        _ => 64,
                    },
                );
                thread(&memory, &body, object, at.map(u32::cast_signed)).unwrap();
                let stored = memory.picture.unwrap().stored.into_inner().unwrap();
                let expected: BTreeMap<_, _> = (0..bytes * count)
                    .map(|n| {
                        let from = place(object, [at[0] + n, at[1], at[2]]);
                        let to = place(object, [at[0] - 16 + n, at[1] - 2, at[2]]);
                        (to, byte(from) ^ if n == 0 { 255 } else { 0 })
                    })
                    .collect();
                assert_eq!(stored, expected, "{geometry}{vector}.{ty}");
            }
        }
    }
}

/// Places outside, and the nearest place of 8 bytes.
#[rstest]
#[case::before([-1, 1, 1], [0, 1, 1])]
#[case::far_before([i32::MIN, 1, 1], [0, 1, 1])]
#[case::behind([40, 1, 1], [32, 1, 1])]
#[case::far_behind([i32::MAX, 1, 1], [32, 1, 1])]
#[case::partly_behind([36, 1, 1], [32, 1, 1])]
#[case::above([8, -1, 1], [8, 0, 1])]
#[case::below([8, 5, 1], [8, 4, 1])]
#[case::in_front([8, 1, -1], [8, 1, 0])]
#[case::at_the_back([8, 1, 3], [8, 1, 2])]
#[case::everywhere([99, 99, 99], [32, 4, 2])]
fn an_access_outside_traps_or_is_nearest_or_does_nothing(
    #[case] at: [i32; 3],
    #[case] nearest: [u32; 3],
) {
    const VOLUME: u64 = 3;
    let access = |kind: &str, clamp: &str| {
        let memory = memory(2);
        let body = match kind {
            "load" => format!(
                "mov.b32 %r0, 7; mov.b32 %r1, 7;
                suld.b.3d.v2.b32.{clamp} {{%r0, %r1}}, [%o, {{%x, %y, %z, 0}}];
                st.u32 [%to], %r0; st.u32 [%to+4], %r1;"
            ),
            _ => format!("sust.b.3d.v2.b32.{clamp} [%o, {{%x, %y, %z, 0}}], {{-1, 5}};"),
        };
        let result = thread(&memory, &body, VOLUME, at);
        let loaded = memory.longs()[0];
        let stored = memory.picture.unwrap().stored.into_inner().unwrap();
        result.map(|()| (loaded, stored))
    };
    for write in [false, true] {
        let kind = if write { "store" } else { "load" };
        let fault = Fault::Outside {
            object: VOLUME,
            at: at.map(i64::from),
            bytes: 8,
            write,
        };
        assert_eq!(access(kind, "trap").unwrap_err(), fault);
        assert_eq!(access(kind, "zero").unwrap(), (0, BTreeMap::new()));
    }
    let [x, y, z] = nearest;
    let loaded = (0..8).map(|n| byte([x + n, y, z]));
    let (value, _) = access("load", "clamp").unwrap();
    assert!(loaded.eq(value.to_le_bytes()));
    let (_, stored) = access("store", "clamp").unwrap();
    let bytes = [255, 255, 255, 255, 5, 0, 0, 0];
    let expected = (0..8).zip(bytes).map(|(n, byte)| ([x + n, y, z], byte));
    assert!(expected.eq(stored));
}

#[test]
fn the_number_of_a_layer_has_no_sign() {
    let body = "suld.b.a1d.b32.trap %r0, [%o, {%z, %x}];";
    let fault = Fault::Outside {
        object: 4,
        at: [0, 0, i64::from(u32::MAX)],
        bytes: 4,
        write: false,
    };
    assert_eq!(thread(&memory(0), body, 4, [0, 0, -1]), Err(fault));
}

#[test]
fn a_misaligned_access_is_a_fault() {
    for (write, body) in [
        (false, "suld.b.2d.v2.b16.zero {%h0, %h1}, [%o, {%x, %y}];"),
        (true, "sust.b.2d.b32.clamp [%o, {%x, %y}], %r0;"),
    ] {
        let fault = Fault::Misaligned {
            address: 6,
            bytes: 4,
            write,
        };
        assert_eq!(thread(&memory(0), body, 2, [6, 0, 0]), Err(fault));
    }
}

#[test]
fn an_object_must_exist_and_have_the_geometry() {
    let suld = "suld.b.2d.b32.zero %r0, [%o, {%x, %y}];";
    let tex = "tex.2d.v4.s32.s32 {%r0, %r1, %r2, %r3}, [%o, {%x, %y}];";
    for body in [suld, tex] {
        for object in [0, 1, 3, 6] {
            let fault = Err(Fault::Object { object });
            assert_eq!(thread(&memory(0), body, object, [0; 3]), fault);
        }
        assert_eq!(thread(&memory(0), body, 2, [0; 3]), Ok(()));
        // A machine without images.
        let fault = Err(Fault::Object { object: 2 });
        assert_eq!(thread(&Memory::new(0), body, 2, [0; 3]), fault);
    }
}

#[test]
fn texels_are_read_and_outside_are_zero_or_the_nearest() {
    for (object, (geometry, coordinates)) in (1..).zip(COORDINATES) {
        for (level, at, expected) in [
            (None, [39, 4, 2], Some((0, [39, 4, 2]))),
            (None, [-1, 0, 0], None),
            (None, [40, 0, 0], None),
            (Some(0), [39, 4, 2], Some((0, [39, 4, 2]))),
            (Some(2), [9, 2, 2], Some((2, [9, 2, 2]))),
            (Some(1), [20, 4, 3], Some((1, [19, 3, 2]))),
            (Some(0), [-1, -5, 0], Some((0, [0, 0, 0]))),
            (Some(3), [0, 0, 0], None),
            (Some(-1), [0, 0, 0], None),
        ] {
            let (name, operand) = match level {
                Some(level) => (".level", format!(", {level}")),
                None => (".base", String::new()),
            };
            let memory = memory(4);
            let body = format!(
                "tex{name}.{geometry}.v4.f32.s32 {{%r0, %r1, %r2, %r3}}, [%o, {coordinates}]{operand};
                st.u32 [%to], %r0; st.u32 [%to+4], %r1; st.u32 [%to+8], %r2; st.u32 [%to+12], %r3;"
            );
            thread(&memory, &body, object, at).unwrap();
            let expected = match expected {
                Some((level, at)) => {
                    let [x, y, z] = place(object, at);
                    vec![x, y, z, 0xffff_ff00 + level]
                }
                None => vec![0; 4],
            };
            assert_eq!(memory.words(), expected, "{geometry} {level:?} {at:?}");
        }
    }
}

#[test]
fn each_thread_has_its_own_place_and_object() {
    // Odd threads read the layers, thread 8 the plane, and the others nothing.
    let text = ".version 7.8 .target sm_90 .address_size 64
        .entry f(.param .u64 to) {
            .reg .b32 %r<5>; .reg .b64 %d<5>; .reg .u32 %x, %t, %odd; .reg .u64 %to, %o;
            .reg .pred %p;
            ld.param.u64 %to, [to];
            mov.u32 %t, %tid.x; and.b32 %odd, %t, 1; setp.eq.u32 %p, %odd, 1;
            mul.wide.u32 %d0, %t, 4; add.u64 %to, %to, %d0;
            shl.b32 %x, %t, 2; rem.u32 %x, %x, 40;
            mov.b32 %r0, 99;
            mov.u64 %o, 77;
        @%p mov.u64 %o, 5;
        @%p suld.b.a2d.b32.trap %r0, [%o, {1, %x, 4, 0}];
            setp.eq.u32 %p, %t, 8;
        @%p mov.u64 %o, 2;
        @%p suld.b.2d.b32.trap %r0, [%o, {%x, 3}];
            st.u32 [%to], %r0;
        }";
    let memory = memory(64);
    run(text, "f", [1; 3], [64, 1, 1], &[BASE], &memory).unwrap();
    let expected = (0..64).map(|t| {
        let x = t * 4 % 40;
        let word = |y, z| u32::from_le_bytes([0, 1, 2, 3].map(|n| byte([x + n, y, z])));
        match t {
            8 => word(3, 0),
            _ if t % 2 == 1 => word(4, 1),
            _ => 99,
        }
    });
    assert_eq!(memory.words(), expected.collect::<Vec<_>>());
    // Thread 0 reads an object that is there, and thread 1 one that is not.
    let text = text
        .replace("%o, 77", "%o, 5")
        .replace("@%p mov.u64 %o, 5", "@%p mov.u64 %o, 6")
        .replace("@%p suld.b.a2d", "suld.b.a2d");
    let fault = Err(Fault::Object { object: 6 });
    assert_eq!(run(&text, "f", [1; 3], [64, 1, 1], &[BASE], &memory), fault);
}
