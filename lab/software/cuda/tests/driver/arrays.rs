//! Arrays: images that the Vulkan layer has bound to memory.

use std::os::fd::IntoRawFd;
use std::sync::Arc;

use syncline_software_payload::{BoundImage, Image, Level, Memory};

use super::cuda::*;

const LAYERED: u32 = 1;
const SURFACE: u32 = 2;
/// Bytes of the memory.
const SIZE: u64 = 1 << 20;
/// Where the image begins.
const OFFSET: u64 = 4096;

/// Memory as the layer exports it, with an image, and CUDA's import of it.
struct Bound {
    bytes: Arc<Memory>,
    _image: BoundImage,
    memory: Handle,
}

/// An image of RGBA8 texels with gaps between its rows and slices.
fn image(extent: [u32; 3], layers: u32, levels: u32) -> Image {
    let level = |level: u32| {
        let row_pitch = u64::from(extent[0] * 4).next_multiple_of(64);
        Level {
            offset: u64::from(level) << 16,
            row_pitch,
            slice_pitch: row_pitch * u64::from(extent[1] + 2),
        }
    };
    Image {
        offset: OFFSET,
        format: 37,
        dimensions: if extent[2] > 1 { 3 } else { 2 },
        extent,
        layers,
        samples: 1,
        is_cube: false,
        is_linear: false,
        levels: (0..levels).map(level).collect(),
    }
}

fn bind(image: &Image) -> Bound {
    let (bytes, file) = Memory::create(SIZE, [0; 16]).unwrap();
    let bytes = Arc::new(bytes);
    let desc = MemoryDesc {
        kind: 1,
        descriptor: file.into_raw_fd().into(),
        unused: 0,
        size: SIZE,
        rest: [0; 9],
    };
    Bound {
        _image: bytes.add_image(image).unwrap(),
        bytes,
        memory: made(|to| cuImportExternalMemory(to, &raw const desc)),
    }
}

impl Bound {
    fn byte(&self, at: u64) -> *mut u8 {
        assert!(at < SIZE);
        self.bytes.address().wrapping_add(at as usize)
    }

    fn get(&self, at: u64) -> u8 {
        // SAFETY: within the memory, and nothing writes there now.
        unsafe { self.byte(at).read_volatile() }
    }

    fn set(&self, at: u64, byte: u8) {
        // SAFETY: as above.
        unsafe { self.byte(at).write_volatile(byte) };
    }

    fn map(&self, desc: &MappedArrayDesc) -> Result<Handle, u32> {
        let mut array = 0;
        match cuExternalMemoryGetMappedMipmappedArray(&raw mut array, self.memory, desc) {
            0 => Ok(array),
            code => Err(code),
        }
    }
}

/// CUDA's description of an [`image`] of two dimensions.
fn desc(extent: [usize; 3], levels: u32) -> MappedArrayDesc {
    MappedArrayDesc {
        offset: OFFSET,
        array: Array3dDesc {
            extent,
            format: 1,
            channels: 4,
            flags: if extent[2] > 0 {
                SURFACE | LAYERED
            } else {
                SURFACE
            },
        },
        levels,
        rest: [0; 16],
    }
}

fn level(array: Handle, level: u32) -> Handle {
    made(|to| cuMipmappedArrayGetLevel(to, array, level))
}

fn of_array(array: Handle) -> Side3d {
    Side3d {
        kind: ARRAY,
        array,
        ..Side3d::default()
    }
}

fn of_host(bytes: &mut [u8], pitch: usize, height: usize) -> Side3d {
    Side3d {
        kind: HOST,
        host: bytes.as_mut_ptr().expose_provenance(),
        pitch,
        height,
        ..Side3d::default()
    }
}

#[test]
fn an_array_has_the_texels_where_the_table_says() {
    let _context = Context::new();
    let image = image([5, 3, 1], 2, 1);
    let bound = bind(&image);
    let array = level(bound.map(&desc([5, 3, 2], 1)).unwrap(), 0);
    let at = |x: u64, y: u64, z: u64| {
        OFFSET + x + y * image.levels[0].row_pitch + z * image.levels[0].slice_pitch
    };
    for (z, y) in [(0, 0), (0, 2), (1, 1)] {
        bound.set(at(7, y, z), (10 * z + y + 1) as u8);
    }
    let mut all = [0_u8; 20 * 3 * 2];
    let mut copy = Copy3d {
        from: of_array(array),
        to: of_host(&mut all, 20, 3),
        extent: [20, 3, 2],
    };
    ok(cuMemcpy3D_v2(&raw const copy));
    assert_eq!([all[7], all[47], all[60 + 27]], [1, 3, 12]);
    assert_eq!(all.iter().filter(|byte| **byte != 0).count(), 3);
    // A part of layer 1, from pitched memory of the device.
    let (stream, memory) = (stream(), made(|to| cuMemAlloc_v2(to, 256)));
    ok(cuMemsetD8Async(memory, 9, 256, stream));
    copy.from = Side3d {
        start: [3, 1, 0, 0],
        kind: DEVICE,
        device: memory,
        pitch: 32,
        ..Side3d::default()
    };
    copy.to = of_array(array);
    copy.to.start = [4, 1, 1, 0];
    copy.extent = [8, 2, 1];
    ok(cuMemcpy3DAsync_v2(&raw const copy, stream));
    ok(cuStreamSynchronize(stream));
    let nines = (0..SIZE).filter(|&at| bound.get(at) == 9).count();
    let corners = [(4, 1, 1), (11, 1, 1), (4, 2, 1), (11, 2, 1)];
    assert_eq!(nines, 16);
    assert!(corners.iter().all(|&(x, y, z)| bound.get(at(x, y, z)) == 9));
    // Two dimensions are layer 0. From the host, and back into a host buffer with gaps.
    let mut rows = [1_u8, 2, 3, 4, 0, 0, 5, 6, 7, 8, 0, 0];
    let flat_array = Side2d {
        start: [8, 1],
        kind: ARRAY,
        array,
        ..Side2d::default()
    };
    let flat_host = |bytes: &mut [u8; 12]| Side2d {
        kind: HOST,
        host: bytes.as_mut_ptr().expose_provenance(),
        pitch: 6,
        ..Side2d::default()
    };
    let there = Copy2d {
        from: flat_host(&mut rows),
        to: flat_array,
        extent: [4, 2],
    };
    ok(cuMemcpy2DAsync_v2(&raw const there, stream));
    let mut found = [99; 12];
    let back = Copy2d {
        from: flat_array,
        to: flat_host(&mut found),
        extent: [4, 2],
    };
    ok(cuStreamSynchronize(stream));
    assert_eq!([bound.get(at(8, 1, 0)), bound.get(at(11, 2, 0))], [1, 8]);
    ok(cuMemcpy2D_v2(&raw const back));
    // The gaps of the host's rows stay as they are.
    assert_eq!(found, [1, 2, 3, 4, 99, 99, 5, 6, 7, 8, 99, 99]);
}

#[test]
fn levels_are_arrays_of_half_the_size() {
    let _context = Context::new();
    let bound = bind(&image([61, 37, 1], 1, 4));
    let mipmapped = bound.map(&desc([61, 37, 0], 4)).unwrap();
    for (number, extent) in [(0, [61, 37]), (1, [30, 18]), (2, [15, 9]), (3, [7, 4])] {
        let array = level(mipmapped, number);
        assert_eq!(array, level(mipmapped, number));
        let flat = made(|to| cuArrayGetDescriptor_v2(to, array));
        assert_eq!((flat.extent, flat.format, flat.channels), (extent, 1, 4));
        let solid = made(|to| cuArray3DGetDescriptor_v2(to, array));
        assert_eq!(solid, desc([extent[0], extent[1], 0], 1).array);
        let place = OFFSET + (u64::from(number) << 16);
        bound.set(place, 40 + number as u8);
        let mut all = vec![0; extent[0] * 4 * extent[1]];
        let copy = Copy3d {
            from: of_array(array),
            to: of_host(&mut all, extent[0] * 4, extent[1]),
            extent: [extent[0] * 4, extent[1], 1],
        };
        ok(cuMemcpy3D_v2(&raw const copy));
        assert_eq!(all[0], 40 + number as u8);
    }
    assert_eq!(cuMipmappedArrayGetLevel(&mut 0, mipmapped, 4), 1);
    assert_eq!(cuMipmappedArrayGetLevel(&mut 0, mipmapped + 1, 0), 400);
    assert_eq!(
        cuMipmappedArrayGetLevel(std::ptr::null_mut(), mipmapped, 0),
        1
    );
}

#[test]
fn other_descriptions_get_memory() {
    other_descriptions(false);
}

#[test]
#[ignore = "run by settings_choose_and_refuse"]
fn other_descriptions_are_refused() {
    other_descriptions(true);
}

fn other_descriptions(strict: bool) {
    let _context = Context::new();
    let bound = bind(&image([61, 37, 1], 1, 4));
    let right = desc([61, 37, 0], 4);
    let also_right = MappedArrayDesc {
        array: Array3dDesc {
            // Texels of the same size.
            format: 3,
            channels: 1,
            flags: SURFACE | 0x20,
            ..right.array
        },
        ..right
    };
    for right in [right, also_right] {
        bound.map(&right).unwrap();
    }
    let others = [
        desc([60, 37, 0], 4),
        desc([61, 36, 0], 4),
        desc([61, 37, 0], 3),
        desc([61, 0, 0], 4),
        desc([61, 37, 2], 1),
        MappedArrayDesc {
            offset: OFFSET + 1,
            ..right
        },
        MappedArrayDesc {
            array: Array3dDesc {
                channels: 2,
                ..right.array
            },
            ..right
        },
    ];
    for other in others {
        match bound.map(&other) {
            Err(code) => assert!(strict && code == 1, "{other:?}: {code}"),
            Ok(array) => {
                assert!(!strict, "{other:?}");
                // All of it lies within the memory.
                let array = level(array, 0);
                let Array3dDesc {
                    extent, channels, ..
                } = made(|to| cuArray3DGetDescriptor_v2(to, array));
                let [width, height, layers] = extent.map(|size| size.max(1));
                let row = width * channels as usize;
                let mut all = vec![0; row * height * layers];
                let copy = Copy3d {
                    from: of_array(array),
                    to: of_host(&mut all, row, height),
                    extent: [row, height, layers],
                };
                ok(cuMemcpy3D_v2(&raw const copy));
            }
        }
    }
    // An array that is not for surfaces, and an unknown flag.
    let mut plain = desc([61, 37, 0], 4);
    plain.array.flags = 0;
    let plain = level(bound.map(&plain).unwrap(), 0);
    let surface = cuSurfObjectCreate(&mut 0, &resource(0, plain));
    texture(0, plain, 1).unwrap();
    let mut unknown = right;
    unknown.array.flags |= 1 << 31;
    let unknown = bound.map(&unknown).err();
    let expected = if strict { (1, Some(1)) } else { (0, None) };
    assert_eq!((surface, unknown), expected);
    // The external memory must outlive its arrays.
    let array = level(bound.map(&right).unwrap(), 0);
    ok(cuDestroyExternalMemory(bound.memory));
    let mut texel = [0; 4];
    let copy = Copy3d {
        from: of_array(array),
        to: of_host(&mut texel, 4, 1),
        extent: [4, 1, 1],
    };
    let copied = cuMemcpy3D_v2(&raw const copy);
    assert_eq!(copied, if strict { 400 } else { 0 });
}

#[test]
fn copies_stay_within_both_sides() {
    let _context = Context::new();
    let bound = bind(&image([5, 3, 1], 2, 1));
    let array = level(bound.map(&desc([5, 3, 2], 1)).unwrap(), 0);
    let mut bytes = [0; 120];
    let right = Copy3d {
        from: of_array(array),
        to: of_host(&mut bytes, 20, 3),
        extent: [20, 3, 2],
    };
    let changed = |change: fn(&mut Copy3d)| {
        let mut changed = right;
        change(&mut changed);
        cuMemcpy3D_v2(&raw const changed)
    };
    assert_eq!(changed(|_| ()), 0);
    assert_eq!(changed(|copy| copy.extent[1] = 0), 0);
    let wrong: [fn(&mut Copy3d); 13] = [
        |copy| copy.extent[0] = 21,
        |copy| copy.extent[1] = 4,
        |copy| copy.extent[2] = 3,
        |copy| copy.extent[2] = usize::MAX,
        |copy| copy.from.start[0] = 1,
        |copy| copy.from.start[1] = usize::MAX,
        |copy| copy.from.start[2] = 1,
        |copy| copy.from.start[3] = 1,
        |copy| copy.from.kind = 0,
        |copy| copy.to.pitch = 19,
        |copy| copy.to.height = 2,
        |copy| copy.to.host = 0,
        |copy| copy.to.pitch = usize::MAX,
    ];
    for change in wrong {
        assert_eq!(changed(change), 1);
    }
    assert_eq!(changed(|copy| copy.from.array = 7), 400);
    assert_eq!(cuMemcpy3D_v2(std::ptr::null()), 1);
    assert_eq!(cuMemcpy2D_v2(std::ptr::null()), 1);
    // A device address without memory.
    let mut outside = right;
    outside.to = Side3d {
        kind: DEVICE,
        device: made(|to| cuMemAlloc_v2(to, 119)),
        pitch: 20,
        height: 3,
        ..Side3d::default()
    };
    assert_eq!(cuMemcpy3D_v2(&raw const outside), 1);
}

#[test]
fn a_graph_copies_an_array_at_each_launch() {
    let _context = Context::new();
    let bound = bind(&image([5, 3, 1], 1, 1));
    let array = level(bound.map(&desc([5, 3, 0], 1)).unwrap(), 0);
    let words = Pinned::new(8);
    let copy = Copy3d {
        from: of_array(array),
        to: Side3d {
            kind: DEVICE,
            device: words.address(),
            pitch: 20,
            ..Side3d::default()
        },
        extent: [20, 3, 1],
    };
    let captured = stream();
    ok(cuStreamBeginCapture_v2(captured, 1));
    ok(cuMemcpy3DAsync_v2(&raw const copy, captured));
    let graph = made(|to| cuStreamEndCapture(captured, to));
    let graph = made(|to| cuGraphInstantiateWithFlags(to, graph, 0));
    for byte in [3, 4] {
        bound.set(OFFSET, byte);
        ok(cuGraphLaunch(graph, captured));
        ok(cuStreamSynchronize(captured));
        assert_eq!(words.get() & 0xff, byte.into());
    }
}

#[test]
fn a_destroyed_array_is_no_more() {
    let context = Context::new();
    let bound = bind(&image([5, 3, 1], 1, 1));
    let mipmapped = bound.map(&desc([5, 3, 0], 1)).unwrap();
    let array = level(mipmapped, 0);
    ok(cuMipmappedArrayDestroy(mipmapped));
    assert_eq!(cuMipmappedArrayDestroy(mipmapped), 400);
    assert_eq!(cuMipmappedArrayDestroy(0), 1);
    assert_eq!(cuMipmappedArrayGetLevel(&mut 0, mipmapped, 0), 400);
    assert_eq!(
        cuArrayGetDescriptor_v2(&mut ArrayDesc::default(), array),
        400
    );
    // One of a destroyed context neither.
    let again = level(bound.map(&desc([5, 3, 0], 1)).unwrap(), 0);
    drop(context);
    let _other = Context::new();
    assert_eq!(
        cuArrayGetDescriptor_v2(&mut ArrayDesc::default(), again),
        400
    );
}

#[test]
fn work_on_a_destroyed_array_is_a_fault() {
    super::processes::passes(
        &super::processes::child("arrays::destroys_too_early")
            .output()
            .unwrap(),
    );
}

#[test]
#[ignore = "run by work_on_a_destroyed_array_is_a_fault"]
fn destroys_too_early() {
    let _context = Context::new();
    let bound = bind(&image([5, 3, 1], 1, 1));
    let mipmapped = bound.map(&desc([5, 3, 0], 1)).unwrap();
    let (stream, words) = (stream(), Pinned::new(8));
    let copy = Copy3d {
        from: of_array(level(mipmapped, 0)),
        to: Side3d {
            kind: DEVICE,
            device: words.address(),
            ..Side3d::default()
        },
        extent: [20, 1, 1],
    };
    ok(cuStreamWaitValue64_v2(stream, words.address() + 56, 1, 0));
    ok(cuMemcpy3DAsync_v2(&raw const copy, stream));
    ok(cuMipmappedArrayDestroy(mipmapped));
    words.words()[7].store(1, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(cuStreamSynchronize(stream), 700);
}

fn resource(kind: u32, array: Handle) -> Resource {
    Resource {
        kind,
        array,
        ..Resource::default()
    }
}

/// A texture whose texels are read with the flags of `CUDA_TEXTURE_DESC`.
fn texture(kind: u32, array: Handle, flags: u32) -> Result<u64, u32> {
    let mut desc = [0; 26];
    desc[4] = flags;
    let (resource, mut texture) = (resource(kind, array), 0);
    let null = std::ptr::null();
    match cuTexObjectCreate(&raw mut texture, &raw const resource, &raw const desc, null) {
        0 => Ok(texture),
        code => Err(code),
    }
}

fn surface(array: Handle) -> u64 {
    made(|to| cuSurfObjectCreate(to, &resource(0, array)))
}

/// A kernel with an object and an address to which it stores four words.
fn kernel(name: &str, instructions: &str) -> Handle {
    let text = format!(
        ".version 6.4 .target sm_60 .address_size 64 .visible .entry {name}(.param .u64 object, \
         .param .u64 to) {{ .reg .b32 %r<8>; .reg .u64 %object, %to; ld.param.u64 %object, [object]; \
         ld.param.u64 %to, [to]; {instructions} st.u32 [%to], %r0; st.u32 [%to+4], %r1; \
         st.u32 [%to+8], %r2; st.u32 [%to+12], %r3; ret; }}"
    );
    function(&text, name)
}

#[test]
fn kernels_access_levels_through_objects() {
    let _context = Context::new();
    let bound = bind(&image([61, 37, 1], 1, 4));
    let signed = MappedArrayDesc {
        array: Array3dDesc {
            format: 9,
            channels: 2,
            ..desc([61, 37, 0], 4).array
        },
        ..desc([61, 37, 0], 4)
    };
    let mipmapped = bound.map(&signed).unwrap();
    // Texel (3, 2) of level 1.
    let place = OFFSET + (1 << 16) + 2 * 256 + 3 * 4;
    let words = Pinned::new(2);
    let seen = || {
        let [low, high] =
            [0, 1].map(|at| words.words()[at].load(std::sync::atomic::Ordering::SeqCst));
        [
            low as u32,
            (low >> 32) as u32,
            high as u32,
            (high >> 32) as u32,
        ]
    };
    let run = |kernel, object| {
        ok(launch(kernel, 0, &[object, words.address()]));
        ok(cuCtxSynchronize());
    };
    let one = surface(level(mipmapped, 1));
    let store = kernel(
        "store",
        "mov.u32 %r0, 0x8000fffe; mov.u32 %r4, 12; mov.u32 %r5, 2; \
         sust.b.2d.b32.trap [%object, {%r4, %r5}], {%r0};",
    );
    run(store, one);
    assert_eq!(
        [0, 1, 2, 3].map(|at| bound.get(place + at)),
        [0xfe, 0xff, 0, 0x80]
    );
    let load = kernel(
        "load",
        ".reg .b16 %h<2>; mov.u32 %r4, 12; mov.u32 %r5, 2; \
         suld.b.2d.v2.b16.trap {%h0, %h1}, [%object, {%r4, %r5}]; \
         cvt.u32.u16 %r0, %h0; cvt.u32.u16 %r1, %h1;",
    );
    run(load, one);
    assert_eq!(seen()[..2], [0xfffe, 0x8000]);
    // The components of a texture are extended with their sign.
    let all = texture(1, mipmapped, 1).unwrap();
    let texel = kernel(
        "texel",
        "mov.u32 %r4, 3; mov.u32 %r5, 2; mov.u32 %r6, 1; \
         tex.level.2d.v4.s32.s32 {%r0, %r1, %r2, %r3}, [%object, {%r4, %r5}], %r6;",
    );
    run(texel, all);
    assert_eq!(seen(), [0xffff_fffe, 0xffff_8000, 0, 0]);
    // Of one level alone, that is level 0.
    let alone = texture(0, level(mipmapped, 1), 1).unwrap();
    let base = kernel(
        "base",
        "mov.u32 %r4, 3; mov.u32 %r5, 2; \
         tex.2d.v4.s32.s32 {%r0, %r1, %r2, %r3}, [%object, {%r4, %r5}];",
    );
    run(base, alone);
    assert_eq!(seen()[0], 0xffff_fffe);
    ok(cuSurfObjectDestroy(one));
    ok(cuTexObjectDestroy(all));
}

#[test]
fn objects_are_of_live_arrays() {
    let _context = Context::new();
    let bound = bind(&image([5, 3, 1], 1, 1));
    let mipmapped = bound.map(&desc([5, 3, 0], 1)).unwrap();
    let array = level(mipmapped, 0);
    let create = |resource: Resource| cuSurfObjectCreate(&mut 0, &raw const resource);
    let one = surface(array);
    let told = made(|to| cuSurfObjectGetResourceDesc(to, one));
    assert_eq!(told, resource(0, array));
    assert_eq!(create(resource(1, mipmapped)), 1);
    assert_eq!(create(resource(0, 7)), 400);
    let flagged = Resource {
        flags: 1,
        ..resource(0, array)
    };
    assert_eq!(create(flagged), 1);
    assert_eq!(cuSurfObjectCreate(std::ptr::null_mut(), &raw const told), 1);
    assert_eq!(cuSurfObjectCreate(&mut 0, std::ptr::null()), 1);
    for (kind, code) in [(2, 801), (3, 801), (4, 1)] {
        assert_eq!(texture(kind, array, 1), Err(code));
    }
    assert_eq!(texture(0, mipmapped, 1), Err(400));
    assert_eq!(cuTexObjectDestroy(one), 1);
    ok(cuSurfObjectDestroy(one));
    assert_eq!(cuSurfObjectDestroy(one), 1);
    assert_eq!(
        cuSurfObjectGetResourceDesc(&mut Resource::default(), one),
        1
    );
    ok(cuMipmappedArrayDestroy(mipmapped));
    assert_eq!(create(resource(0, array)), 400);
    assert_eq!(texture(1, mipmapped, 1), Err(400));
}

#[rstest::rstest]
#[case::surface("uses_a_destroyed_surface")]
#[case::array("uses_the_surface_of_a_destroyed_array")]
fn a_kernel_with_a_destroyed_object_is_a_fault(#[case] test: &str) {
    let test = format!("arrays::{test}");
    super::processes::passes(&super::processes::child(&test).output().unwrap());
}

#[test]
#[ignore = "run by a_kernel_with_a_destroyed_object_is_a_fault"]
fn uses_a_destroyed_surface() {
    destroys_what_a_kernel_uses(|surface, _| cuSurfObjectDestroy(surface));
}

#[test]
#[ignore = "run by a_kernel_with_a_destroyed_object_is_a_fault"]
fn uses_the_surface_of_a_destroyed_array() {
    destroys_what_a_kernel_uses(|_, mipmapped| cuMipmappedArrayDestroy(mipmapped));
}

fn destroys_what_a_kernel_uses(destroy: fn(u64, Handle) -> u32) {
    let _context = Context::new();
    let bound = bind(&image([5, 3, 1], 1, 1));
    let mipmapped = bound.map(&desc([5, 3, 0], 1)).unwrap();
    let (surface, words) = (surface(level(mipmapped, 0)), Pinned::new(8));
    let load = kernel(
        "load",
        "mov.u32 %r4, 0; suld.b.2d.b32.trap {%r0}, [%object, {%r4, %r4}];",
    );
    let stream = stream();
    ok(launch(load, stream, &[surface, words.address()]));
    ok(cuStreamSynchronize(stream));
    ok(cuStreamWaitValue64_v2(stream, words.address() + 56, 1, 0));
    ok(launch(load, stream, &[surface, words.address()]));
    ok(destroy(surface, mipmapped));
    words.words()[7].store(1, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(cuStreamSynchronize(stream), 700);
}

#[test]
fn live_arrays_and_objects_are_counted() {
    super::processes::passes(
        &super::processes::child("arrays::counts_objects")
            .output()
            .unwrap(),
    );
}

#[test]
#[ignore = "run by live_arrays_and_objects_are_counted"]
fn counts_objects() {
    let context = Context::new();
    let bound = bind(&image([61, 37, 1], 1, 4));
    // The context and the memory.
    let before = live_objects();
    let mipmapped = bound.map(&desc([61, 37, 0], 4)).unwrap();
    assert_eq!(live_objects(), before + 1);
    let (one, all) = (
        surface(level(mipmapped, 0)),
        texture(1, mipmapped, 1).unwrap(),
    );
    assert_eq!(live_objects(), before + 3);
    ok(cuSurfObjectDestroy(one));
    ok(cuTexObjectDestroy(all));
    ok(cuMipmappedArrayDestroy(mipmapped));
    assert_eq!(live_objects(), before);
    let left = bound.map(&desc([61, 37, 0], 4)).unwrap();
    surface(level(left, 0));
    texture(1, left, 1).unwrap();
    drop(context);
    assert_eq!(live_objects(), 0);
}
