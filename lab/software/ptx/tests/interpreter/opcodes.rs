//! Each instruction of arithmetic, with what a GPU computes.
//!
//! Divisions by zero, bit fields, funnel shifts, `lop3`, `prmt`, saturation and narrow registers
//! were compared with an H100 and its driver 580.159.04.

use std::fmt::Write;

use crate::common::{BASE, Memory, run_entry};
use syncline_software_ptx::Module;

const MIN4: u64 = 0x8000_0000;
const MAX4: u64 = 0x7fff_ffff;
const ALL4: u64 = 0xffff_ffff;
const MIN8: u64 = 0x8000_0000_0000_0000;
const MAX8: u64 = 0x7fff_ffff_ffff_ffff;
const ALL8: u64 = u64::MAX;
const ALL2: u64 = 0xffff;

/// An instruction, the values of `%a`, `%b` and `%c`, and the result.
///
/// The names of registers end with their bytes: `%a4` is `%a` cut to 4 bytes. Results go to `%d2`,
/// `%d4`, `%d8`, or to the predicates `%r` (worth 1) and `%s` (worth 2).
/// `%p` and `%q` say whether `%a` and `%b` are not 0.
type Case = (&'static str, [u64; 3], u64);

#[rustfmt::skip]
const CASES: &[Case] = &[
    // Addition and subtraction wrap.
    ("add.u16 %d2, %a2, %b2", [ALL2, 2, 0], 1),
    ("add.s16 %d2, %a2, -1", [0, 0, 0], ALL2),
    ("add.u32 %d4, %a4, %b4", [ALL4, 2, 0], 1),
    ("add.s32 %d4, %a4, %b4", [MAX4, 1, 0], MIN4),
    ("add.u64 %d8, %a8, %b8", [ALL8, 2, 0], 1),
    ("add.s64 %d8, %a8, -3", [1, 0, 0], ALL8 - 1),
    ("add.sat.s32 %d4, %a4, %b4", [MAX4, 1, 0], MAX4),
    ("add.sat.s32 %d4, %a4, %b4", [MIN4, ALL4, 0], MIN4),
    ("add.sat.s32 %d4, %a4, %b4", [3, ALL4, 0], 2),
    ("sub.u16 %d2, %a2, %b2", [0, 1, 0], ALL2),
    ("sub.u32 %d4, %a4, %b4", [0, 1, 0], ALL4),
    ("sub.s32 %d4, %a4, %b4", [MIN4, 1, 0], MAX4),
    ("sub.u64 %d8, %a8, %b8", [0, 1, 0], ALL8),
    ("sub.sat.s32 %d4, %a4, %b4", [MIN4, 1, 0], MIN4),
    ("sub.sat.s32 %d4, %a4, %b4", [MAX4, ALL4, 0], MAX4),
    ("sub.s64 %d8, 5, %a8", [7, 0, 0], ALL8 - 1),
    // Products.
    ("mul.lo.u16 %d2, %a2, %b2", [ALL2, ALL2, 0], 1),
    ("mul.lo.u32 %d4, %a4, %b4", [0x10001, 0x10001, 0], 0x20001),
    ("mul.lo.s32 %d4, %a4, %b4", [ALL4, 5, 0], ALL4 - 4),
    ("mul.lo.u64 %d8, %a8, %b8", [ALL8, 3, 0], ALL8 - 2),
    ("mul.hi.u16 %d2, %a2, %b2", [ALL2, ALL2, 0], ALL2 - 1),
    ("mul.hi.s16 %d2, %a2, %b2", [ALL2, 2, 0], ALL2),
    ("mul.hi.u32 %d4, %a4, %b4", [ALL4, ALL4, 0], ALL4 - 1),
    ("mul.hi.s32 %d4, %a4, %b4", [ALL4, ALL4, 0], 0),
    ("mul.hi.s32 %d4, %a4, %b4", [MIN4, 2, 0], ALL4),
    ("mul.hi.u64 %d8, %a8, %b8", [ALL8, ALL8, 0], ALL8 - 1),
    ("mul.hi.s64 %d8, %a8, %b8", [MIN8, MIN8, 0], 0x4000_0000_0000_0000),
    ("mul.wide.u16 %d4, %a2, %b2", [ALL2, ALL2, 0], 0xfffe_0001),
    ("mul.wide.s16 %d4, %a2, %b2", [ALL2, 2, 0], ALL4 - 1),
    ("mul.wide.u32 %d8, %a4, %b4", [ALL4, ALL4, 0], 0xffff_fffe_0000_0001),
    ("mul.wide.s32 %d8, %a4, %b4", [ALL4, 2, 0], ALL8 - 1),
    ("mul.wide.u32 %d8, %a4, -1", [2, 0, 0], 0x1_ffff_fffe),
    ("mad.lo.u16 %d2, %a2, %b2, %c2", [300, 300, 1], 90001 & ALL2),
    ("mad.lo.s32 %d4, %a4, -4, %c4", [3, 0, 5], ALL4 - 6),
    ("mad.lo.u64 %d8, %a8, %b8, %c8", [1 << 32, 1 << 32, 9], 9),
    ("mad.hi.u32 %d4, %a4, %b4, %c4", [ALL4, ALL4, 3], 1),
    ("mad.hi.s64 %d8, %a8, %b8, %c8", [ALL8, 1, 1], 0),
    ("mad.wide.u16 %d4, %a2, %b2, %c4", [ALL2, ALL2, ALL4], 0xfffe_0000),
    ("mad.wide.s32 %d8, %a4, %b4, %c8", [ALL4, 7, 7], 0),
    ("mad.wide.u32 %d8, %a4, %b4, %c8", [ALL4, ALL4, ALL8], 0xffff_fffe_0000_0000),
    // Division rounds to zero.
    ("div.u16 %d2, %a2, %b2", [ALL2, 10, 0], 6553),
    ("div.s16 %d2, %a2, %b2", [ALL2 - 6, 2, 0], ALL2 - 2),
    ("div.u32 %d4, %a4, %b4", [ALL4, 2, 0], MAX4),
    ("div.s32 %d4, %a4, %b4", [ALL4 - 6, 2, 0], ALL4 - 2),
    ("div.s32 %d4, %a4, %b4", [MIN4, ALL4, 0], MIN4),
    ("div.u64 %d8, %a8, %b8", [ALL8, 16, 0], ALL8 >> 4),
    ("div.s64 %d8, %a8, %b8", [ALL8 - 6, 2, 0], ALL8 - 2),
    ("rem.u16 %d2, %a2, %b2", [ALL2, 10, 0], 5),
    ("rem.u32 %d4, %a4, %b4", [ALL4, 10, 0], 5),
    ("rem.s32 %d4, %a4, %b4", [ALL4 - 6, 4, 0], ALL4 - 2),
    ("rem.s32 %d4, %a4, %b4", [7, ALL4 - 3, 0], 3),
    ("rem.s32 %d4, %a4, %b4", [MIN4, ALL4, 0], 0),
    ("rem.u64 %d8, %a8, %b8", [ALL8, 10, 0], 5),
    ("rem.s64 %d8, %a8, %b8", [ALL8 - 6, 4, 0], ALL8 - 2),
    // PTX leaves a division by zero open.
    ("div.u32 %d4, %a4, %b4", [7, 0, 0], ALL4),
    ("div.s32 %d4, %a4, %b4", [7, 0, 0], ALL4),
    ("div.u64 %d8, %a8, %b8", [7, 0, 0], ALL8),
    ("rem.u32 %d4, %a4, %b4", [7, 0, 0], ALL4),
    ("rem.s32 %d4, %a4, %b4", [7, 0, 0], ALL4),
    ("rem.u64 %d8, %a8, %b8", [7, 0, 0], ALL8),
    // Sign and order.
    ("min.u32 %d4, %a4, %b4", [1, ALL4, 0], 1),
    ("min.s32 %d4, %a4, %b4", [1, ALL4, 0], ALL4),
    ("max.u32 %d4, %a4, %b4", [1, ALL4, 0], ALL4),
    ("max.s32 %d4, %a4, -96", [ALL4 - 200, 0, 0], 0xffff_ffa0),
    ("min.u16 %d2, %a2, %b2", [1, ALL2, 0], 1),
    ("min.s16 %d2, %a2, %b2", [1, ALL2, 0], ALL2),
    ("max.u64 %d8, %a8, %b8", [1, ALL8, 0], ALL8),
    ("max.s64 %d8, %a8, %b8", [1, ALL8, 0], 1),
    ("neg.s16 %d2, %a2", [1, 0, 0], ALL2),
    ("neg.s32 %d4, %a4", [MIN4, 0, 0], MIN4),
    ("neg.s64 %d8, %a8", [1, 0, 0], ALL8),
    ("abs.s16 %d2, %a2", [ALL2, 0, 0], 1),
    ("abs.s32 %d4, %a4", [MIN4, 0, 0], MIN4),
    ("abs.s32 %d4, %a4", [ALL4, 0, 0], 1),
    ("abs.s64 %d8, %a8", [MIN8 + 1, 0, 0], MAX8),
    ("sad.u32 %d4, %a4, %b4, %c4", [1, ALL4, 3], 1),
    ("sad.s32 %d4, %a4, %b4, %c4", [1, ALL4, 3], 5),
    ("sad.u16 %d2, %a2, %b2, %c2", [9, 4, 1], 6),
    ("sad.s64 %d8, %a8, %b8, %c8", [ALL8, 4, 1], 6),
    // Bits.
    ("and.b16 %d2, %a2, %b2", [0xff0f, 0x0ff0, 0], 0x0f00),
    ("and.b32 %d4, %a4, 127", [0xfff, 0, 0], 127),
    ("and.b64 %d8, %a8, %b8", [ALL8, MIN8, 0], MIN8),
    ("or.b32 %d4, %a4, 0xff000000", [0xf, 0, 0], 0xff00_000f),
    ("or.b64 %d8, %a8, %b8", [1, MIN8, 0], MIN8 | 1),
    ("xor.b16 %d2, %a2, -1", [0xff, 0, 0], 0xff00),
    ("xor.b32 %d4, %a4, %b4", [0xff, 0xf0, 0], 0xf),
    ("xor.b64 %d8, %a8, %b8", [ALL8, 1, 0], ALL8 - 1),
    ("not.b16 %d2, %a2", [1, 0, 0], ALL2 - 1),
    ("not.b32 %d4, %a4", [1, 0, 0], ALL4 - 1),
    ("not.b64 %d8, %a8", [1, 0, 0], ALL8 - 1),
    ("cnot.b32 %d4, %a4", [7, 0, 0], 0),
    ("cnot.b32 %d4, %a4", [0, 0, 0], 1),
    ("cnot.b64 %d8, %a8", [0, 0, 0], 1),
    ("and.pred %r, %p, %q", [1, 1, 0], 1),
    ("and.pred %r, %p, %q", [1, 0, 0], 0),
    ("or.pred %r, %p, %q", [0, 1, 0], 1),
    ("or.pred %r, %p, %q", [0, 0, 0], 0),
    ("xor.pred %r, %p, %q", [1, 1, 0], 0),
    ("xor.pred %r, %p, %q", [1, 0, 0], 1),
    ("not.pred %r, %p", [1, 0, 0], 0),
    ("not.pred %r, %p", [0, 0, 0], 1),
    ("mov.pred %r, %p", [1, 0, 0], 1),
    ("mov.pred %r, 2", [0, 0, 0], 1),
    ("popc.b32 %d4, %a4", [0xf0f0, 0, 0], 8),
    ("popc.b64 %d4, %a8", [ALL8, 0, 0], 64),
    ("clz.b32 %d4, %a4", [1, 0, 0], 31),
    ("clz.b32 %d4, %a4", [0, 0, 0], 32),
    ("clz.b64 %d4, %a8", [1, 0, 0], 63),
    ("clz.b64 %d4, %a8", [0, 0, 0], 64),
    ("brev.b32 %d4, %a4", [3, 0, 0], 0xc000_0000),
    ("brev.b64 %d8, %a8", [1, 0, 0], MIN8),
    // Shifts by more than the size clamp.
    ("shl.b16 %d2, %a2, %b4", [ALL2, 15, 0], 0x8000),
    ("shl.b16 %d2, %a2, %b4", [ALL2, 16, 0], 0),
    ("shl.b32 %d4, %a4, %b4", [ALL4, 31, 0], MIN4),
    ("shl.b32 %d4, %a4, %b4", [ALL4, 32, 0], 0),
    ("shl.b32 %d4, %a4, %b4", [ALL4, ALL4, 0], 0),
    ("shl.b32 %d4, %a4, %b4", [ALL4, 256, 0], 0),
    ("shl.b64 %d8, %a8, %b4", [ALL8, 63, 0], MIN8),
    ("shl.b64 %d8, %a8, %b4", [ALL8, 64, 0], 0),
    ("shr.u16 %d2, %a2, %b4", [ALL2, 15, 0], 1),
    ("shr.s16 %d2, %a2, %b4", [0x8000, 1, 0], 0xc000),
    ("shr.s16 %d2, %a2, %b4", [0x8000, 99, 0], ALL2),
    ("shr.b32 %d4, %a4, %b4", [MIN4, 31, 0], 1),
    ("shr.u32 %d4, %a4, %b4", [ALL4, 32, 0], 0),
    ("shr.s32 %d4, %a4, %b4", [MIN4, 32, 0], ALL4),
    ("shr.s32 %d4, %a4, %b4", [MAX4, 32, 0], 0),
    ("shr.s32 %d4, %a4, 9", [ALL4 - 1023, 0, 0], ALL4 - 1),
    ("shr.u64 %d8, %a8, %b4", [MIN8, 63, 0], 1),
    ("shr.u64 %d8, %a8, %b4", [MIN8, 64, 0], 0),
    ("shr.s64 %d8, %a8, %b4", [MIN8, 64, 0], ALL8),
    ("shr.s64 %d8, %a8, %b4", [MIN8, ALL4, 0], ALL8),
    ("shf.l.wrap.b32 %d4, %a4, %b4, %c4", [0x8000_0001, 0x8000_0001, 1], 3),
    ("shf.l.wrap.b32 %d4, %a4, %b4, %c4", [1, 2, 32], 2),
    ("shf.l.clamp.b32 %d4, %a4, %b4, %c4", [1, 2, 32], 1),
    ("shf.l.clamp.b32 %d4, %a4, %b4, %c4", [1, 2, 40], 1),
    ("shf.r.wrap.b32 %d4, %a4, %b4, %c4", [2, 1, 1], 0x8000_0001),
    ("shf.r.wrap.b32 %d4, %a4, %b4, %c4", [2, 1, 32], 2),
    ("shf.r.clamp.b32 %d4, %a4, %b4, %c4", [2, 1, 33], 1),
    ("bfe.u32 %d4, %a4, %b4, %c4", [0x1234_5678, 8, 12], 0x456),
    ("bfe.s32 %d4, %a4, %b4, %c4", [0x0000_0f00, 8, 4], ALL4),
    ("bfe.s32 %d4, %a4, %b4, %c4", [0x0000_0700, 8, 4], 7),
    ("bfe.s32 %d4, %a4, %b4, %c4", [MIN4, 40, 4], ALL4),
    ("bfe.s32 %d4, %a4, %b4, %c4", [MIN4, 28, 16], 0xffff_fff8),
    ("bfe.u32 %d4, %a4, %b4, %c4", [ALL4, 40, 4], 0),
    ("bfe.u32 %d4, %a4, %b4, %c4", [ALL4, 28, 16], 0xf),
    ("bfe.s32 %d4, %a4, %b4, %c4", [ALL4, 3, 0], 0),
    ("bfe.u32 %d4, %a4, %b4, %c4", [ALL4, 0, 255], ALL4),
    ("bfe.u64 %d8, %a8, %b4, %c4", [MIN8, 60, 4], 8),
    ("bfe.s64 %d8, %a8, %b4, %c4", [MIN8, 60, 4], ALL8 - 7),
    ("bfi.b32 %d4, %a4, %b4, %c4, 8", [0x1ff, 0, 4], 0xff0),
    ("bfi.b32 %d4, %a4, %b4, %c4, 8", [0, ALL4, 28], 0x0fff_ffff),
    ("bfi.b32 %d4, %a4, %b4, %c4, 8", [0, ALL4, 32], ALL4),
    ("bfi.b64 %d8, %a8, %b8, %c4, 64", [5, 3, 0], 5),
    ("bfi.b64 %d8, %a8, %b8, %c4, 0", [5, 3, 0], 3),
    ("lop3.b32 %d4, %a4, %b4, %c4, 0x80", [0xff, 0xf0, 0x3c], 0x30),
    ("lop3.b32 %d4, %a4, %b4, %c4, 0xfe", [1, 2, 4], 7),
    ("lop3.b32 %d4, %a4, %b4, %c4, 0x96", [0xf, 0x3, 0x5], 0x9),
    ("lop3.b32 %d4, %a4, %b4, %c4, 0xf0", [0x1234, 1, 2], 0x1234),
    ("lop3.b32 %d4, %a4, %b4, %c4, 0xca", [0xff, 0x12, 0x3456], 0x3412),
    ("prmt.b32 %d4, %a4, %b4, 0x0123", [0x1122_3344, 0, 0], 0x4433_2211),
    ("prmt.b32 %d4, %a4, %b4, 0x7610", [0x1122_3344, 0xaabb_ccdd, 0], 0xaabb_3344),
    ("prmt.b32 %d4, %a4, %b4, %c4", [0x80, 0x7f00_0000, 0xf8f8], 0x00ff_00ff),
    // Comparisons.
    ("setp.eq.u32 %r, %a4, %b4", [1, 1, 0], 1),
    ("setp.eq.b64 %r, %a8, %b8", [1, 1 << 32 | 1, 0], 0),
    ("setp.ne.s16 %r, %a2, -1", [ALL2, 0, 0], 0),
    ("setp.ne.u32 %r, %a4, 0", [1, 0, 0], 1),
    ("setp.lt.u32 %r, %a4, %b4", [1, ALL4, 0], 1),
    ("setp.lt.s32 %r, %a4, %b4", [1, ALL4, 0], 0),
    ("setp.le.s32 %r, %a4, %b4", [ALL4, ALL4, 0], 1),
    ("setp.le.u64 %r, %a8, %b8", [ALL8, 1, 0], 0),
    ("setp.gt.s64 %r, %a8, %b8", [1, ALL8, 0], 1),
    ("setp.gt.u64 %r, %a8, %b8", [1, ALL8, 0], 0),
    ("setp.ge.s16 %r, %a2, %b2", [ALL2, 0, 0], 0),
    ("setp.ge.u16 %r, %a2, %b2", [ALL2, 0, 0], 1),
    ("setp.lo.u32 %r, %a4, %b4", [1, ALL4, 0], 1),
    ("setp.ls.u32 %r, %a4, %b4", [ALL4, ALL4, 0], 1),
    ("setp.hi.u32 %r, %a4, %b4", [ALL4, 1, 0], 1),
    ("setp.hs.u32 %r, %a4, %b4", [1, ALL4, 0], 0),
    ("setp.eq.u32 %r|%s, %a4, %b4", [1, 1, 0], 1),
    ("setp.eq.u32 %r|%s, %a4, %b4", [1, 2, 0], 2),
    ("setp.lt.and.u32 %r|%s, %a4, 5, %q", [1, 1, 0], 1),
    ("setp.lt.and.u32 %r|%s, %a4, 5, %q", [9, 1, 0], 2),
    ("setp.lt.and.u32 %r|%s, %a4, 5, %q", [9, 0, 0], 0),
    ("setp.lt.or.u32 %r|%s, %a4, 5, %q", [9, 1, 0], 3),
    ("setp.lt.xor.u32 %r|%s, %a4, 5, !%q", [1, 0, 0], 2),
    ("set.lt.u32.s32 %d4, %a4, %b4", [ALL4, 1, 0], ALL4),
    ("set.lt.s32.u32 %d4, %a4, %b4", [ALL4, 1, 0], 0),
    ("set.eq.and.u32.u64 %d4, %a8, %b8, %q", [3, 3, 0], ALL4),
    ("selp.s32 %d4, 4, -28, %p", [1, 0, 0], 4),
    ("selp.s32 %d4, 4, -28, %p", [0, 0, 0], 0xffff_ffe4),
    ("selp.b16 %d2, %b2, %c2, %p", [0, 1, 2], 2),
    ("selp.u64 %d8, %b8, %c8, %p", [1, ALL8, 2], ALL8),
    // Moves and conversions.
    ("mov.u16 %d2, %a2", [0x12345, 0, 0], 0x2345),
    ("mov.b32 %d4, 0xFFFFFFFF", [0, 0, 0], ALL4),
    ("mov.u32 %d4, -1", [0, 0, 0], ALL4),
    ("mov.u32 %d4, 017", [0, 0, 0], 15),
    ("mov.u32 %d4, 0b101U", [0, 0, 0], 5),
    ("mov.u32 %d4, WARP_SZ", [0, 0, 0], 32),
    ("mov.u64 %d8, -2", [0, 0, 0], ALL8 - 1),
    ("mov.u64 %d8, 18446744073709551615", [0, 0, 0], ALL8),
    ("mov.u32 %d4, %ntid.x", [0, 0, 0], 1),
    ("cvta.to.global.u64 %d8, %a8", [77, 0, 0], 77),
    ("cvta.global.u64 %d8, %a8", [77, 0, 0], 77),
    ("cvt.u64.u32 %d8, %a4", [ALL4, 0, 0], ALL4),
    ("cvt.s64.s32 %d8, %a4", [ALL4, 0, 0], ALL8),
    ("cvt.u64.s32 %d8, %a4", [ALL4, 0, 0], ALL8),
    ("cvt.s64.u32 %d8, %a4", [ALL4, 0, 0], ALL4),
    ("cvt.u32.u64 %d4, %a8", [1 << 32 | 7, 0, 0], 7),
    ("cvt.u16.u32 %d2, %a4", [0x12345, 0, 0], 0x2345),
    ("cvt.u32.u8 %d4, %a4", [0x1ff, 0, 0], 0xff),
    ("cvt.s32.s8 %d4, %a4", [0x1ff, 0, 0], ALL4),
    ("cvt.u8.u32 %d4, %a4", [0x1ff, 0, 0], 0xff),
    ("cvt.s8.s32 %d4, %a4", [0x1ff, 0, 0], ALL4),
    ("cvt.s16.u8 %d2, %a2", [0xff, 0, 0], 0xff),
    ("cvt.u32.u32 %d4, %ntid.y", [0, 0, 0], 1),
    ("cvt.u64.u32 %d8, %nctaid.x", [0, 0, 0], 1),
    ("cvt.sat.u8.s32 %d4, %a4", [ALL4, 0, 0], 0),
    ("cvt.sat.u8.s32 %d4, %a4", [300, 0, 0], 255),
    ("cvt.sat.s8.s32 %d4, %a4", [ALL4 - 299, 0, 0], 0xffff_ff80),
    ("cvt.sat.s16.u32 %d2, %a4", [ALL4, 0, 0], 0x7fff),
    ("cvt.sat.s32.u32 %d4, %a4", [ALL4, 0, 0], MAX4),
    ("cvt.sat.u32.s64 %d4, %a8", [ALL8, 0, 0], 0),
    ("cvt.sat.u32.s64 %d4, %a8", [1 << 40, 0, 0], ALL4),
    ("cvt.sat.u64.s64 %d8, %a8", [MIN8, 0, 0], 0),
    ("cvt.sat.s64.u64 %d8, %a8", [MIN8, 0, 0], MAX8),
    // Guards.
    ("@%p mov.u32 %d4, 5", [0, 0, 0], 0),
    ("@%p mov.u32 %d4, 5", [1, 0, 0], 5),
    ("@!%p mov.u32 %d4, 5", [1, 0, 0], 0),
    ("@!%p mov.u32 %d4, 5", [0, 0, 0], 5),
    // Memory: %o holds the address of the result, which the kernel overwrites at its end.
    ("st.u64 [%o], %a8; ld.u8 %d4, [%o+1]", [0xff00, 0, 0], 0xff),
    ("st.global.u64 [%o], %a8; ld.global.s8 %d4, [%o+1]", [0xff00, 0, 0], ALL4),
    ("st.u64 [%o], %a8; ld.s8 %d8, [%o+1]", [0xff00, 0, 0], ALL8),
    ("st.u64 [%o], %a8; ld.s16 %d4, [%o+2]", [0x8000_0000, 0, 0], 0xffff_8000),
    ("st.u64 [%o], %a8; ld.u16 %d8, [%o+2]", [0x8000_0000, 0, 0], 0x8000),
    ("st.u64 [%o], %a8; ld.s32 %d8, [%o]", [MIN4, 0, 0], 0xffff_ffff_8000_0000),
    ("st.u64 [%o], %a8; ld.b32 %d8, [%o]", [MIN4, 0, 0], MIN4),
    ("st.u64 [%o], 0; st.u8 [%o+3], %a4; ld.u64 %d8, [%o]", [0x1ff, 0, 0], 0xff00_0000),
    ("st.u64 [%o], 0; st.u16 [%o+2], %a8; ld.u64 %d8, [%o]", [0x1_ffff, 0, 0], 0xffff_0000),
    ("st.u32 [%o+4], -1; st.u32 [%o+0], 1; ld.u64 %d8, [%o]", [0, 0, 0], 0xffff_ffff_0000_0001),
    ("st.volatile.global.u64 [%o], %a8; ld.volatile.global.u64 %d8, [%o]", [9, 0, 0], 9),
    ("st.relaxed.gpu.u64 [%o], %a8; ld.relaxed.sys.global.u64 %d8, [%o]", [9, 0, 0], 9),
    ("st.release.sys.global.u32 [%o], %a4; ld.acquire.gpu.u32 %d4, [%o]", [9, 0, 0], 9),
    ("st.weak.global.u32 [%o], %a4; ld.weak.global.u32 %d4, [%o]", [9, 0, 0], 9),
    ("st.global.cs.u32 [%o], %a4; ld.global.ca.u32 %d4, [%o]", [9, 0, 0], 9),
    ("membar.sys; membar.gl; membar.cta; fence.acq_rel.gpu; fence.sc.sys; mov.u32 %d4, 1", [0, 0, 0], 1),
    ("nanosleep.u32 10; mov.u32 %d4, 1", [0, 0, 0], 1),
    ("ld.param.u32 %d4, [a]", [1 << 40 | 6, 0, 0], 6),
    ("ld.param.u8 %d4, [a+5]", [0xab << 40, 0, 0], 0xab),
    ("ld.param.s8 %d8, [a+5]", [0xab << 40, 0, 0], 0xffff_ffff_ffff_ffab),
    // Atomics return the value before.
    ("st.u64 [%o], %a8; atom.add.u32 %d4, [%o], %b4", [7, ALL4, 0], 7),
    ("st.u64 [%o], %a8; atom.global.add.u32 %d4, [%o], %b4; ld.u64 %d8, [%o]; mov.u32 %d4, 0", [7, ALL4, 0], 6),
    ("st.u64 [%o], %a8; red.add.s32 [%o], %b4; ld.u64 %d8, [%o]", [3, ALL4 - 8, 0], ALL4 - 5),
    ("st.u64 [%o], %a8; red.global.add.u64 [%o], %b8; ld.u64 %d8, [%o]", [ALL8, 2, 0], 1),
    ("st.u64 [%o], %a8; red.min.s32 [%o], %b4; ld.u64 %d8, [%o]", [1, ALL4, 0], ALL4),
    ("st.u64 [%o], %a8; red.min.u32 [%o], %b4; ld.u64 %d8, [%o]", [1, ALL4, 0], 1),
    ("st.u64 [%o], %a8; red.max.s64 [%o], %b8; ld.u64 %d8, [%o]", [1, ALL8, 0], 1),
    ("st.u64 [%o], %a8; red.max.u64 [%o], %b8; ld.u64 %d8, [%o]", [1, ALL8, 0], ALL8),
    ("st.u64 [%o], %a8; red.and.b32 [%o], %b4; ld.u64 %d8, [%o]", [0xff, 0xf0f, 0], 0xf),
    ("st.u64 [%o], %a8; red.or.b64 [%o], %b8; ld.u64 %d8, [%o]", [1, MIN8, 0], MIN8 | 1),
    ("st.u64 [%o], %a8; red.relaxed.sys.global.xor.b32 [%o], %b4; ld.u64 %d8, [%o]", [0xff, 0xf, 0], 0xf0),
    ("st.u64 [%o], %a8; atom.acq_rel.gpu.global.exch.b64 %d8, [%o], %b8", [3, 4, 0], 3),
    ("st.u64 [%o], %a8; atom.exch.b64 %d8, [%o], %b8; ld.u64 %d8, [%o]", [3, 4, 0], 4),
    ("st.u64 [%o], %a8; atom.cas.b32 %d4, [%o], %b4, %c4; ld.u64 %d8, [%o]; mov.u32 %d4, 0", [3, 3, 8], 8),
    ("st.u64 [%o], %a8; atom.cas.b32 %d4, [%o], %b4, %c4; ld.u64 %d8, [%o]; mov.u32 %d4, 0", [3, 4, 8], 3),
    ("st.u64 [%o], %a8; atom.acquire.sys.cas.b64 %d8, [%o], %b8, %c8", [3, 3, 8], 3),
    ("st.u64 [%o], %a8; atom.add.u32 _, [%o], %b4; ld.u64 %d8, [%o]", [7, 2, 0], 9),
    ("st.u64 [%o], %a8; atom.global.gpu.add.u32 %d4, [%o], 1", [7, 0, 0], 7),
    ("st.u64 [%o], %a8; red.inc.u32 [%o], %b4; ld.u64 %d8, [%o]", [3, 9, 0], 4),
    ("st.u64 [%o], %a8; red.inc.u32 [%o], %b4; ld.u64 %d8, [%o]", [9, 9, 0], 0),
    ("st.u64 [%o], %a8; atom.dec.u32 %d4, [%o], %b4; ld.u64 %d8, [%o]; mov.u32 %d4, 0", [3, 9, 0], 2),
    ("st.u64 [%o], %a8; red.dec.u32 [%o], %b4; ld.u64 %d8, [%o]", [0, 9, 0], 9),
    ("st.u64 [%o], %a8; red.dec.u32 [%o], %b4; ld.u64 %d8, [%o]", [10, 9, 0], 9),
    // Branches, scopes and ranges.
    ("bra.uni over; mov.u32 %d4, 1; over: add.u32 %d4, %d4, 2", [0, 0, 0], 2),
    ("@%p bra over; add.u32 %d4, %d4, 1; over: add.u32 %d4, %d4, 2", [1, 0, 0], 2),
    ("@!%p bra over; add.u32 %d4, %d4, 1; over: add.u32 %d4, %d4, 2", [1, 0, 0], 3),
    ("{ .reg .u32 %x; mov.u32 %x, 3; { .reg .u32 %x; mov.u32 %x, 4; } mov.u32 %d4, %x; }", [0, 0, 0], 3),
    ("{ .reg .b32 %x<3>; mov.u32 %x0, 3; mov.u32 %x2, 4; add.u32 %d4, %x0, %x2; }", [0, 0, 0], 7),
    ("{ bra next; next: mov.u32 %d4, 1; } { bra next; mov.u32 %d4, 7; next: }", [0, 0, 0], 1),
    (".reg .u8 %e; st.u64 [%o], %a8; ld.u8 %e, [%o]; cvt.s32.s8 %d4, %e", [0xff, 0, 0], ALL4),
];

/// A module with a kernel for each case.
fn text() -> String {
    let mut text = ".version 7.8\n.target sm_90\n.address_size 64\n".to_owned();
    for (index, (case, _, _)) in CASES.iter().enumerate() {
        let end = if case.ends_with([';', '}', ':']) {
            ""
        } else {
            ";"
        };
        write!(
            text,
            ".visible .entry case_{index}(.param .u64 o, .param .u64 a, .param .u64 b, .param .u64 c) {{
    .reg .b64 %o, %a8, %b8, %c8, %d8, %x8;
    .reg .b32 %a4, %b4, %c4, %d4;
    .reg .b16 %a2, %b2, %c2, %d2;
    .reg .pred %p, %q, %r, %s;
    ld.param.u64 %o, [o];
    ld.param.u64 %a8, [a];
    ld.param.u64 %b8, [b];
    ld.param.u64 %c8, [c];
    cvt.u32.u64 %a4, %a8;
    cvt.u32.u64 %b4, %b8;
    cvt.u32.u64 %c4, %c8;
    cvt.u16.u64 %a2, %a8;
    cvt.u16.u64 %b2, %b8;
    cvt.u16.u64 %c2, %c8;
    setp.ne.u64 %p, %a8, 0;
    setp.ne.u64 %q, %b8, 0;
    mov.u64 %d8, 0;
    mov.u32 %d4, 0;
    mov.u16 %d2, 0;
    setp.ne.u32 %r, 0, 0;
    setp.ne.u32 %s, 0, 0;
    {case}{end}
    cvt.u64.u16 %x8, %d2;
    or.b64 %d8, %d8, %x8;
    cvt.u64.u32 %x8, %d4;
    or.b64 %d8, %d8, %x8;
    @%r or.b64 %d8, %d8, 1;
    @%s or.b64 %d8, %d8, 2;
    st.u64 [%o], %d8;
    ret;
}}
"
        )
        .unwrap();
    }
    text
}

#[test]
fn instructions_compute_what_ptx_says() {
    let text = text();
    let module = Module::parse(&text).unwrap();
    let mut wrong = String::new();
    for (index, (case, [a, b, c], expected)) in CASES.iter().enumerate() {
        let memory = Memory::new(8);
        let name = format!("case_{index}");
        // Threads of a warp, and a block of one thread, which runs without one.
        for block in [[1; 3], [3, 1, 1]] {
            if block[0] > 1
                && (case.contains("atom") || case.contains("red") || case.contains("ntid"))
            {
                continue;
            }
            run_entry(&module, &name, [1; 3], block, &[BASE, *a, *b, *c], &memory).unwrap();
            let found = memory.longs()[0];
            if found != *expected {
                writeln!(
                    wrong,
                    "{case} of {a:#x}, {b:#x}, {c:#x}: {found:#x}, not {expected:#x}"
                )
                .unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
