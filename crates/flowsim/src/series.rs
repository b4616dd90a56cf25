//! What each link carried over time, in bounded memory.
//!
//! A link has a fixed number of points. They begin a microsecond apart; when something happens
//! after the last one, neighbours are added up and the points stand twice as far apart. A
//! message's bytes are spread evenly over the time it took: this blurs its rate but loses nothing.

use fabric::LinkId;
use units::{Id, Span};

/// How far apart points are at first, in seconds.
const FINEST: f64 = 1e-6;

/// No row yet.
const NONE: u32 = u32::MAX;

/// Bytes over time, for every link that carried any.
#[derive(Clone, Debug, Default)]
pub struct Series {
    points: usize,
    rows: Vec<u32>,
    /// How often each row's points have moved apart.
    doublings: Vec<u8>,
    bytes: Vec<f32>,
    /// By link: what share of its row is its own; empty while every row has one link.
    shares: Vec<f32>,
}

impl Series {
    /// So many points for each of so many links.
    pub fn new(points: usize, links: usize) -> Self {
        let rows = if points == 0 { Vec::new() } else { vec![NONE; links] };
        Self { points: points.next_multiple_of(2), rows, ..Self::default() }
    }

    /// A link carried so many bytes between two instants, in seconds.
    pub fn add(&mut self, link: usize, from: f64, to: f64, bytes: f64) {
        if self.points == 0 {
            return;
        }
        if self.rows.len() <= link {
            self.rows.resize(link + 1, NONE);
        }
        if self.rows[link] == NONE {
            self.rows[link] = self.doublings.len() as u32;
            self.doublings.push(0);
            self.bytes.resize(self.bytes.len() + self.points, 0.0);
        }
        let row = self.rows[link] as usize;
        while width(self.doublings[row]) * self.points as f64 <= to {
            self.double(row);
        }
        let width = width(self.doublings[row]);
        let row = &mut self.bytes[row * self.points..][..self.points];
        let (first, last) = ((from / width) as usize, (to / width) as usize);
        if first == last {
            row[first] += bytes as f32;
            return;
        }
        let per_second = bytes / (to - from);
        row[first] += (per_second * ((first + 1) as f64 * width - from)) as f32;
        for point in &mut row[first + 1..last] {
            *point += (per_second * width) as f32;
        }
        row[last] += (per_second * (to - last as f64 * width)) as f32;
    }

    /// A link carried this share of what was noted for `whole`.
    pub fn share(&mut self, link: usize, whole: usize, share: f64) {
        if let Some(&row) = self.rows.get(whole) {
            self.shares.resize(self.rows.len(), 1.0);
            (self.rows[link], self.shares[link]) = (row, share as f32);
        }
    }

    /// The bytes that a link carried between consecutive points, and how far these are apart.
    pub fn of(&self, link: LinkId) -> Option<(Span, Vec<f32>)> {
        let row = *self.rows.get(link.index()).filter(|row| **row != NONE)? as usize;
        let width = Span::from_secs_f64(width(self.doublings[row]));
        let share = self.shares.get(link.index()).copied().unwrap_or(1.0);
        let row = self.bytes[row * self.points..][..self.points].iter();
        Some((width, row.map(|bytes| bytes * share).collect()))
    }

    /// The bytes that all these links carried together, at the coarsest of their points.
    pub fn sum(&self, links: impl Iterator<Item = LinkId> + Clone) -> Option<(Span, Vec<f64>)> {
        let row_of = |link: LinkId| self.rows.get(link.index()).filter(|row| **row != NONE);
        let doublings = |link| row_of(link).map(|row| self.doublings[*row as usize]);
        let coarsest = links.clone().filter_map(doublings).max()?;
        let mut sum = vec![0.0; self.points];
        for link in links {
            let Some(&row) = row_of(link) else { continue };
            let row = row as usize;
            let finer = coarsest - self.doublings[row];
            let share = self.shares.get(link.index()).copied().unwrap_or(1.0);
            for (at, bytes) in self.bytes[row * self.points..][..self.points].iter().enumerate() {
                sum[at >> finer] += f64::from(bytes * share);
            }
        }
        Some((Span::from_secs_f64(width(coarsest)), sum))
    }

    fn double(&mut self, row: usize) {
        self.doublings[row] += 1;
        let row = &mut self.bytes[row * self.points..][..self.points];
        for at in 0..row.len() / 2 {
            row[at] = row[2 * at] + row[2 * at + 1];
        }
        row[self.points / 2..].fill(0.0);
    }
}

fn width(doublings: u8) -> f64 {
    FINEST * f64::from(doublings).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: nothing is lost, however often the points move apart.
    #[test]
    fn points_move_apart_and_keep_everything() {
        let mut series = Series::new(8, 2);
        let messages = [(0.0, 3e-6, 300.0), (1e-6, 1e-6, 7.0), (5e-6, 21.5e-6, 1000.0)];
        for (from, to, bytes) in messages {
            series.add(1, from, to, bytes);
        }
        assert_eq!(series.of(LinkId::from_index(0)), None);
        let (width, row) = series.of(LinkId::from_index(1)).unwrap();
        assert_eq!(width, Span::from_us(4));
        assert!((row.iter().sum::<f32>() - 1307.0).abs() < 1e-2);
        series.add(0, 0.0, 1e-6, 50.0);
        let links = [0, 1].map(LinkId::from_index);
        let (together, sum) = series.sum(links.into_iter()).unwrap();
        assert_eq!(together, width);
        assert!((sum[0] - 357.0).abs() < 1e-3 && (sum.iter().sum::<f64>() - 1357.0).abs() < 1e-2);
        assert!((row[0] - 307.0).abs() < 1e-3 && (row[2] - 4.0 / 16.5 * 1000.0).abs() < 1e-2);
    }
}
