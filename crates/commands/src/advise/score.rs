//! What a change gains, seed by seed.

use super::Goal;
use crate::trial::Figures;

/// What a change showed.
#[derive(Clone, Debug)]
pub(super) struct Score {
    goal: Goal,
    /// With the scenario's own seed.
    pub(super) figures: Figures,
    own: f64,
    /// The gains with other seeds.
    others: Vec<f64>,
    saved_usd: f64,
}

impl Score {
    /// With the scenario's own seed.
    pub(super) fn new(goal: Goal, base: &Figures, figures: Figures) -> Self {
        let own = gain(goal, base, &figures);
        let saved_usd = base.cost_usd - figures.cost_usd;
        Self { goal, figures, own, others: Vec::new(), saved_usd }
    }

    /// With another seed.
    pub(super) fn add(&mut self, base: &Figures, figures: &Figures) {
        self.others.push(gain(self.goal, base, figures));
    }

    /// The gain with the scenario's own seed.
    pub(super) fn own(&self) -> f64 {
        self.own
    }

    /// How many seeds it was run with, the scenario's own included.
    pub(super) fn seeds(&self) -> usize {
        1 + self.others.len()
    }

    /// Whether it gains with its own seed, and nobody has asked another.
    pub(super) fn is_open(&self, least: f64) -> bool {
        self.others.is_empty() && least < self.own
    }

    /// Whether it is cheaper to buy.
    pub(super) fn saves_money(&self) -> bool {
        0.0 < self.saved_usd
    }

    /// The mean over the other seeds, or where there are none the own.
    pub(super) fn mean(&self) -> f64 {
        match self.others.len() {
            0 => self.own,
            count => self.others.iter().sum::<f64>() / count as f64,
        }
    }

    fn deviation(&self) -> f64 {
        let count = self.others.len();
        if count < 2 {
            return 0.0;
        }
        let mean = self.mean();
        let squares: f64 = self.others.iter().map(|gain| (gain - mean).powi(2)).sum();
        (squares / (count - 1) as f64).sqrt()
    }

    /// Where eight of ten further seeds are: Student's distribution, for one more value.
    pub(super) fn interval(&self) -> (f64, f64) {
        let count = self.others.len();
        let mean = self.mean();
        if count < 2 {
            return (mean, mean);
        }
        let half = ninetieth(count - 1) * self.deviation() * (1.0 + 1.0 / count as f64).sqrt();
        (mean - half, mean + half)
    }

    /// Whether the mean is above nothing, at nine of ten; and no seed that was run is much worse.
    pub(super) fn is_sure(&self) -> bool {
        let count = self.others.len();
        if count < 2 {
            return true;
        }
        let error = ninetieth(count - 1) * self.deviation() / (count as f64).sqrt();
        error < self.mean()
    }
}

fn gain(goal: Goal, base: &Figures, figures: &Figures) -> f64 {
    1.0 - goal.of(figures) / goal.of(base).max(f64::MIN_POSITIVE)
}

/// The 90th percentile of Student's distribution.
fn ninetieth(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372];
    TABLE.get(freedom.max(1) - 1).copied().unwrap_or(1.282 + 0.9 / freedom as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(step_s: f64) -> Figures {
        Figures { step_s, goodput: 0.5, ..Figures::default() }
    }

    #[test]
    fn gains_are_compared_seed_by_seed() {
        let mut score = Score::new(Goal::Step, &figures(10.0), figures(9.0));
        assert!((score.mean() - 0.1).abs() < 1e-12 && score.is_sure());
        // The own seed chose it, so it does not judge it.
        score.add(&figures(10.0), &figures(8.0));
        score.add(&figures(20.0), &figures(16.0));
        assert!((score.mean() - 0.2).abs() < 1e-12);
        assert_eq!(score.interval(), (score.mean(), score.mean()));
        score.add(&figures(10.0), &figures(14.0));
        let (low, high) = score.interval();
        assert!(low < score.mean() && score.mean() < high && !score.is_sure());
        let goodput = Score::new(Goal::Goodput, &figures(10.0), figures(5.0));
        assert!((goodput.own() - 0.5).abs() < 1e-12);
    }

    /// Oracle: tabulated percentiles of Student's distribution.
    #[test]
    fn student_is_as_tabulated() {
        for (freedom, expected) in [(1, 3.078), (4, 1.533), (20, 1.325), (60, 1.296)] {
            assert!((ninetieth(freedom) - expected).abs() < 5e-3, "{freedom}");
        }
    }
}
