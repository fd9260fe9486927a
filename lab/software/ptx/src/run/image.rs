//! Surfaces and textures.

use crate::op::{Clamp, Slot, Surface, Texel};
use crate::types::extend;
use crate::{Fault, Geometry, Images, Machine};

use super::rows::Mask;
use super::warp::Warp;

impl<const W: usize> Warp<W> {
    /// `suld.b` and `sust.b`.
    #[inline(never)]
    pub(super) fn surface(
        &mut self,
        machine: &dyn Machine,
        active: &Mask<W>,
        op: Surface,
    ) -> Result<(), Fault> {
        let Surface {
            write,
            clamp,
            geometry,
            ..
        } = op;
        let bytes = u32::from(op.bytes);
        let size = bytes * u32::from(op.count);
        let data = || (0..size).step_by(op.bytes.into()).zip(op.data);
        for lane in lanes(active) {
            let object = self.rows.row(op.object)[lane];
            let images = images(machine, object)?;
            let extent = images.surface(object, geometry)?;
            let at = self.place(geometry, op.at, lane);
            let Some([x, y, z]) = within(at, extent, size, clamp) else {
                if clamp != Clamp::Zero {
                    let bytes = size;
                    return Err(Fault::Outside {
                        object,
                        at,
                        bytes,
                        write,
                    });
                }
                if !write {
                    for (_, d) in data() {
                        self.rows.row_mut(d)[lane] = 0;
                    }
                }
                continue;
            };
            if x % size != 0 {
                return Err(Fault::Misaligned {
                    address: x.into(),
                    bytes: size,
                    write,
                });
            }
            for (skipped, slot) in data() {
                let at = [x + skipped, y, z];
                let value = &mut self.rows.row_mut(slot)[lane];
                if write {
                    images.store(object, at, bytes, extend(*value, op.bytes, false))?;
                } else {
                    *value = images.load(object, at, bytes)?;
                }
            }
        }
        Ok(())
    }

    /// `tex`.
    #[inline(never)]
    pub(super) fn texel(
        &mut self,
        machine: &dyn Machine,
        active: &Mask<W>,
        op: Texel,
    ) -> Result<(), Fault> {
        for lane in lanes(active) {
            let object = self.rows.row(op.object)[lane];
            // As on an H200: outside of a level the nearest texel, and zero without a level.
            let (level, clamp) = match op.level {
                Some(level) => (self.rows.row(level)[lane] as u32, Clamp::Nearest),
                None => (0, Clamp::Zero),
            };
            let images = images(machine, object)?;
            let extent = images.texture(object, op.geometry, level)?;
            let at = self.place(op.geometry, op.at, lane);
            let texel = match within(at, extent, 1, clamp) {
                Some(at) => images.texel(object, level, at)?,
                None => [0; 4],
            };
            for (d, component) in op.d.into_iter().zip(texel) {
                self.rows.row_mut(d)[lane] = component.into();
            }
        }
        Ok(())
    }

    /// The coordinates of a lane. They are signed, but for the number of a layer.
    fn place(&self, geometry: Geometry, at: [Slot; 3], lane: usize) -> [i64; 3] {
        let [x, y, z] = at.map(|slot| self.rows.row(slot)[lane] as u32);
        let layered = matches!(geometry, Geometry::Rows | Geometry::Planes);
        [
            x.cast_signed().into(),
            y.cast_signed().into(),
            if layered {
                z.into()
            } else {
                z.cast_signed().into()
            },
        ]
    }
}

/// The lanes that take part.
fn lanes<const W: usize>(active: &Mask<W>) -> impl Iterator<Item = usize> + use<W> {
    let active = *active;
    (0..W).filter(move |&lane| active[lane] != 0)
}

fn images(machine: &dyn Machine, object: u64) -> Result<&dyn Images, Fault> {
    machine.images().ok_or(Fault::Object { object })
}

/// A place at which `size` units of a row are within the extent.
fn within(at: [i64; 3], extent: [u32; 3], size: u32, clamp: Clamp) -> Option<[u32; 3]> {
    let [width, height, depth] = extent;
    let last = [
        (width / size).checked_sub(1)? * size,
        height.checked_sub(1)?,
        depth.checked_sub(1)?,
    ];
    let mut place = [0; 3];
    for ((place, at), last) in place.iter_mut().zip(at).zip(last) {
        let nearest = at.clamp(0, last.into());
        if nearest != at && clamp != Clamp::Nearest {
            return None;
        }
        *place = u32::try_from(nearest).ok()?;
    }
    Some(place)
}
