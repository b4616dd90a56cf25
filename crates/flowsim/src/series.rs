//! What each link carried over time, in bounded memory.
//!
//! A link has a fixed number of points. They begin a microsecond apart; when something happens
//! after the last one, neighbours are added up and the points stand twice as far apart. A
//! message's bytes are spread evenly over the time it took: this blurs its rate but loses nothing.
//!
//! A folded channel crosses thousands of links at once. Writing its points for each of them would
//! cost more than computing its rate, so it is noted once, with its links, and added up when
//! somebody asks; when such notes outgrow the links they are written out.

use fabric::LinkId;
use units::{Id, Span};

/// How far apart points are at first, in seconds.
const FINEST: f64 = 1e-6;

/// No row yet, no group, part of nothing.
const NONE: u32 = u32::MAX;

/// Messages over at least so many links are noted once.
const MANY_LINKS: usize = 64;

/// Such notes are written out when they name more links than there are, so many times.
const MOST_NOTES: usize = 4;

/// A message over many links.
#[derive(Clone, Copy, Debug)]
struct Note {
    from: f64,
    to: f64,
    bytes: f64,
    /// Its links end here in the list of all notes' links.
    end: usize,
}

/// Bytes over time, for every link that carried any.
#[derive(Clone, Debug, Default)]
pub struct Series {
    points: usize,
    rows: Vec<u32>,
    /// How often each row's points have moved apart.
    doublings: Vec<u8>,
    bytes: Vec<f32>,
    notes: Vec<Note>,
    /// The links of all notes, with the share of the bytes that each carried.
    noted: Vec<(u32, f32)>,
    /// By link: the wide link that it is a part of, and its share of it; empty without any.
    parts: Vec<(u32, f32)>,
}

impl Series {
    /// So many points for each of so many links.
    pub fn new(points: usize, links: usize) -> Self {
        let rows = if points == 0 { Vec::new() } else { vec![NONE; links] };
        Self { points: points.next_multiple_of(2), rows, ..Self::default() }
    }

    /// These links carried their shares of so many bytes between two instants, in seconds.
    pub fn add(
        &mut self,
        links: impl ExactSizeIterator<Item = (usize, f64)>,
        (from, to): (f64, f64),
        bytes: f64,
    ) {
        if self.points == 0 {
            return;
        }
        if links.len() < MANY_LINKS {
            for (link, share) in links {
                self.write(link, (from, to), share * bytes);
            }
            return;
        }
        self.noted.extend(links.map(|(link, share)| (link as u32, share as f32)));
        self.notes.push(Note { from, to, bytes, end: self.noted.len() });
        if MOST_NOTES * self.rows.len() < self.noted.len() {
            self.write_notes();
        }
    }

    fn write_notes(&mut self) {
        let (notes, noted) = (std::mem::take(&mut self.notes), std::mem::take(&mut self.noted));
        let mut first = 0;
        for Note { from, to, bytes, end } in notes {
            for &(link, share) in &noted[first..end] {
                self.write(link as usize, (from, to), f64::from(share) * bytes);
            }
            first = end;
        }
    }

    fn write(&mut self, link: usize, (from, to): (f64, f64), bytes: f64) {
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
        spread(width, (from, to), bytes, |at, bytes| row[at] += bytes as f32);
    }

    /// A link carried this share of what was noted for `whole`.
    pub fn part(&mut self, link: usize, whole: usize, share: f64) {
        let length = self.parts.len().max(link + 1);
        self.parts.resize(length, (NONE, 0.0));
        self.parts[link] = (whole as u32, share as f32);
    }

    /// The bytes that a link carried between consecutive points, and how far these are apart.
    pub fn of(&self, link: LinkId) -> Option<(Span, Vec<f64>)> {
        self.of_each(&[link]).pop().flatten()
    }

    /// The same for several links.
    pub fn of_each(&self, links: &[LinkId]) -> Vec<Option<(Span, Vec<f64>)>> {
        let length = links.iter().map(|link| link.index() + 1).max().unwrap_or(0);
        let mut group_of = vec![NONE; length];
        for (group, link) in (0..).zip(links) {
            group_of[link.index()] = group;
        }
        self.sums(links.len(), &group_of)
    }

    /// The bytes that groups of links carried, each group's at the coarsest points of its links.
    /// `group_of` names the group of every link, `u32::MAX` for those in none.
    pub fn sums(&self, groups: usize, group_of: &[u32]) -> Vec<Option<(Span, Vec<f64>)>> {
        let wholes = self.wholes(group_of);
        let targets = |link: usize| targets(link, group_of, &wholes);
        let mut coarsest: Vec<Option<u8>> = vec![None; groups];
        let used = || self.rows.iter().enumerate().filter(|(_, row)| **row != NONE);
        for (link, row) in used() {
            for (group, _) in targets(link) {
                coarsest[group] = coarsest[group].max(Some(self.doublings[*row as usize]));
            }
        }
        let (mut first, mut amounts, mut noted) = (0, vec![0.0; groups], Vec::new());
        for note in &self.notes {
            for &(link, share) in &self.noted[first..note.end] {
                for (group, weight) in targets(link as usize) {
                    amounts[group] += weight * f64::from(share) * note.bytes;
                }
            }
            first = note.end;
            let needed = (0..).find(|d| note.to < width(*d) * self.points as f64);
            for (group, amount) in amounts.iter_mut().enumerate().filter(|(_, a)| 0.0 < **a) {
                coarsest[group] = coarsest[group].max(needed);
                noted.push((group, *note, std::mem::take(amount)));
            }
        }
        let start = |doublings: u8| (doublings, vec![0.0; self.points]);
        let mut sums: Vec<Option<(u8, Vec<f64>)>> =
            coarsest.into_iter().map(|coarsest| coarsest.map(start)).collect();
        for (link, &row) in used() {
            let row = row as usize;
            let points = &self.bytes[row * self.points..][..self.points];
            for (group, weight) in targets(link) {
                let (coarsest, sum) = sums[group].as_mut().expect("it has a row");
                let finer = *coarsest - self.doublings[row];
                for (at, bytes) in points.iter().enumerate() {
                    sum[at >> finer] += weight * f64::from(*bytes);
                }
            }
        }
        for (group, Note { from, to, .. }, bytes) in noted {
            let (coarsest, sum) = sums[group].as_mut().expect("it has a note");
            spread(width(*coarsest), (from, to), bytes, |at, bytes| sum[at] += bytes);
        }
        let named = |(doublings, sum)| (Span::from_secs_f64(width(doublings)), sum);
        sums.into_iter().map(|sum| sum.map(named)).collect()
    }

    /// What each group has of wide links: sorted by wide link.
    fn wholes(&self, group_of: &[u32]) -> Vec<(u32, u32, f64)> {
        let grouped = self.parts.iter().zip(group_of);
        let mut wholes: Vec<(u32, u32, f64)> = grouped
            .filter(|((whole, _), group)| *whole != NONE && **group != NONE)
            .map(|((whole, share), group)| (*whole, *group, f64::from(*share)))
            .collect();
        wholes.sort_unstable_by_key(|(whole, group, _)| (*whole, *group));
        wholes.dedup_by(|later, kept| {
            let same = (later.0, later.1) == (kept.0, kept.1);
            if same {
                kept.2 += later.2;
            }
            same
        });
        wholes
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

/// The groups that something on a link belongs to, each with its share.
fn targets<'a>(
    link: usize,
    group_of: &[u32],
    wholes: &'a [(u32, u32, f64)],
) -> impl Iterator<Item = (usize, f64)> + use<'a> {
    let own = group_of.get(link).copied().filter(|group| *group != NONE);
    let first = wholes.partition_point(|(whole, ..)| (*whole as usize) < link);
    let shared = wholes[first..].iter().take_while(move |(whole, ..)| *whole as usize == link);
    let own = own.map(|group| (group as usize, 1.0)).into_iter();
    own.chain(shared.map(|(_, group, share)| (*group as usize, *share)))
}

/// Spreads bytes evenly over the points between two instants.
fn spread(width: f64, (from, to): (f64, f64), bytes: f64, mut add: impl FnMut(usize, f64)) {
    let (first, last) = ((from / width) as usize, (to / width) as usize);
    if first == last {
        add(first, bytes);
        return;
    }
    let per_second = bytes / (to - from);
    add(first, per_second * ((first + 1) as f64 * width - from));
    for at in first + 1..last {
        add(at, per_second * width);
    }
    add(last, per_second * (to - last as f64 * width));
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
        let one = |link: usize| [(link, 1.0)].into_iter();
        let messages = [(0.0, 3e-6, 300.0), (1e-6, 1e-6, 7.0), (5e-6, 21.5e-6, 1000.0)];
        for (from, to, bytes) in messages {
            series.add(one(1), (from, to), bytes);
        }
        assert_eq!(series.of(LinkId::from_index(0)), None);
        let (width, row) = series.of(LinkId::from_index(1)).unwrap();
        assert_eq!(width, Span::from_us(4));
        assert!((row.iter().sum::<f64>() - 1307.0).abs() < 1e-2);
        assert!((row[0] - 307.0).abs() < 1e-3 && (row[2] - 4.0 / 16.5 * 1000.0).abs() < 1e-2);
        series.add(one(0), (0.0, 1e-6), 50.0);
        let (together, sum) = series.sums(1, &[0, 0]).pop().unwrap().unwrap();
        assert_eq!(together, width);
        assert!((sum[0] - 357.0).abs() < 1e-3 && (sum.iter().sum::<f64>() - 1357.0).abs() < 1e-2);
    }

    /// Property: a message over many links reads the same noted once, written out, and link by
    /// link; and so do the parts of a wide link.
    #[test]
    fn notes_read_like_rows() {
        let links = 2 * MANY_LINKS;
        let way = |first: usize| (first..first + MANY_LINKS).map(|link| (link, 0.5));
        let (mut noted, mut written) = (Series::new(8, links), Series::new(8, links));
        for (first, time) in [(0, (0.0, 9e-6)), (3, (4e-6, 30e-6)), (links, (1e-6, 2e-6))] {
            noted.add(way(first), time, 1000.0);
            for link in way(first) {
                written.add([link].into_iter(), time, 1000.0);
            }
        }
        noted.part(5, links + 1, 0.25);
        written.part(5, links + 1, 0.25);
        let mut out = noted.clone();
        out.write_notes();
        assert!(out.notes.is_empty() && !noted.notes.is_empty());
        let group_of: Vec<u32> =
            (0..links as u32).map(|link| [0, 1, NONE][link as usize % 3]).collect();
        let expected = written.sums(2, &group_of);
        for sums in [noted.sums(2, &group_of), out.sums(2, &group_of)] {
            for (sum, expected) in sums.iter().flatten().zip(expected.iter().flatten()) {
                assert_eq!(sum.0, expected.0);
                assert!(sum.1.iter().zip(&expected.1).all(|(a, b)| (a - b).abs() < 1e-2));
            }
        }
        let five = noted.of(LinkId::from_index(5)).unwrap().1;
        assert!((five.iter().sum::<f64>() - (500.0 + 500.0 + 125.0)).abs() < 1e-6);
    }
}
