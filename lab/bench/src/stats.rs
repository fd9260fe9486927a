//! Medians and percentiles.

/// Median and percentiles of the samples of one quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    /// Half of the samples are below it.
    pub(crate) median: f64,
    /// A tenth of the samples are below it.
    pub(crate) p10: f64,
    /// A tenth of the samples are above it.
    pub(crate) p90: f64,
}

impl Summary {
    /// Summarizes samples in any order; `None` if there are none.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: percentile(&sorted, 0.5)?,
            p10: percentile(&sorted, 0.1)?,
            p90: percentile(&sorted, 0.9)?,
        })
    }
}

/// The value below which the part `q` (0 to 1) of the sorted samples lies.
///
/// Interpolates between two samples.
pub(crate) fn percentile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = q.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    let part = place - below as f64;
    Some(sorted[below] + (sorted[above] - sorted[below]) * part)
}

/// The median of samples in any order; `None` if there are none.
pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    Summary::of(samples).map(|summary| summary.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_does_not_depend_on_the_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn an_outlier_does_not_move_the_median() {
        let mut samples = vec![10.0; 29];
        samples.push(1e9);
        let summary = Summary::of(&samples);
        assert_eq!(summary.map(|s| (s.median, s.p90)), Some((10.0, 10.0)));
    }

    #[test]
    fn percentiles_are_interpolated() {
        let sorted: Vec<f64> = (0..=10).map(f64::from).collect();
        let found = [0.0, 0.1, 0.25, 1.0].map(|q| percentile(&sorted, q));
        assert_eq!(found, [0.0, 1.0, 2.5, 10.0].map(Some));
    }
}
