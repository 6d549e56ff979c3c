//! The little statistics that the estimates need. All of it on plain slices.

/// The `q` quantile by linear interpolation between order statistics (Hyndman & Fan's type 7). `None` of nothing.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let position = q.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64))
}

pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() { None } else { Some(values.iter().sum::<f64>() / values.len() as f64) }
}

/// Sum of squared deviations from the mean.
pub fn squares(values: &[f64]) -> f64 {
    let mean = mean(values).unwrap_or(0.0);
    values.iter().map(|v| (v - mean).powi(2)).sum()
}

/// Lag-1 autocorrelation, 0 where there is none to see.
pub fn autocorrelation(values: &[f64]) -> f64 {
    let (Some(mean), total) = (mean(values), squares(values)) else { return 0.0 };
    if total <= 0.0 {
        return 0.0;
    }
    values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>() / total
}

/// A straight line through points by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    pub slope: f64,
    pub at_zero: f64,
    /// Standard error of the slope, for independent points.
    pub slope_error: f64,
}

/// `None` with fewer than three points, or if they share one x.
pub fn fit_line(points: &[(f64, f64)]) -> Option<Fit> {
    let n = points.len() as f64;
    if points.len() < 3 {
        return None;
    }
    let x_mean = points.iter().map(|p| p.0).sum::<f64>() / n;
    let y_mean = points.iter().map(|p| p.1).sum::<f64>() / n;
    let xx: f64 = points.iter().map(|p| (p.0 - x_mean).powi(2)).sum();
    if xx <= 0.0 {
        return None;
    }
    let slope = points.iter().map(|p| (p.0 - x_mean) * (p.1 - y_mean)).sum::<f64>() / xx;
    let at_zero = y_mean - slope * x_mean;
    let residual: f64 = points.iter().map(|p| (p.1 - at_zero - slope * p.0).powi(2)).sum();
    Some(Fit { slope, at_zero, slope_error: (residual / (n - 2.0) / xx).sqrt() })
}

/// Student's t quantile from the normal one, by the first terms of Cornish and Fisher's expansion
/// (Abramowitz & Stegun 26.7.5); within 2 % for three degrees of freedom and more at the levels used here.
pub fn student(z: f64, degrees: f64) -> f64 {
    let n = degrees.max(1.0);
    z + (z.powi(3) + z) / (4.0 * n)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
        + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / (384.0 * n.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0], 0.5), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0], 1.0), Some(2.0));
        assert_eq!(quantile(&[7.0], 0.95), Some(7.0));
        assert_eq!(quantile(&[], 0.95), None);
    }

    #[test]
    fn a_line_is_found_again() {
        let points: Vec<_> = (0..10).map(|i| (f64::from(i), 3.0 + 2.0 * f64::from(i))).collect();
        let fit = fit_line(&points).unwrap();
        assert!((fit.slope - 2.0).abs() < 1e-9 && (fit.at_zero - 3.0).abs() < 1e-9 && fit.slope_error < 1e-9);
        assert_eq!(fit_line(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
    }

    #[test]
    fn student_agrees_with_the_tables() {
        // One-sided 95 %: 2.353 at 3 degrees, 1.812 at 10, 1.645 at infinity.
        assert!((student(1.645, 3.0) / 2.353 - 1.0).abs() < 0.02);
        assert!((student(1.645, 10.0) / 1.812 - 1.0).abs() < 0.002);
        assert!((student(1.645, 1e9) - 1.645).abs() < 1e-6);
    }

    #[test]
    fn alternation_and_drift_have_opposite_autocorrelation() {
        assert!(autocorrelation(&[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]) < -0.5);
        assert!(autocorrelation(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) > 0.4);
        assert!(autocorrelation(&[1.0, 1.0]).abs() < 1e-9);
    }
}
