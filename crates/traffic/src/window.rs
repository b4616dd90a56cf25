//! What a sender may have under way before it hears from its receiver.
//!
//! A fluid has no acknowledgements, and a closed form no packets; where a window is smaller than
//! what a round trip holds, this is the term that both have in common with the packets.

use units::Bytes;

/// A window that begins with `first` and grows by what is acknowledged, so that it doubles in
/// every round trip (slow start), up to `most`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Window {
    /// What a new connection may have under way, in whole packets.
    pub first: Bytes,
    /// What it may have under way at most.
    pub most: Bytes,
}

impl Window {
    /// The least time, in seconds, in which a connection that has sent `sent` bytes before sends
    /// `bytes` more over a line of so many bytes per second, if nobody else does.
    ///
    /// ```
    /// use traffic::Window;
    /// use units::Bytes;
    ///
    /// let window = Window { first: Bytes::new(10), most: Bytes::new(40) };
    /// // 10, 20 and 40 bytes wait a round trip each for word of them; the rest is 30.
    /// assert_eq!(window.least_s(100.0, 0.0, 1.0, 1000.0), 3.0 + 0.03);
    /// // Who has sent before has a larger window, and a short way needs none.
    /// assert_eq!(window.least_s(40.0, 30.0, 1.0, 1000.0), 0.04);
    /// assert_eq!(window.least_s(100.0, 0.0, 0.001, 1000.0), 0.1);
    /// ```
    pub fn least_s(&self, bytes: f64, sent: f64, round_trip_s: f64, line: f64) -> f64 {
        let (most, enough) = (self.most.as_f64().max(1.0), line * round_trip_s);
        let mut window = (self.first.as_f64().max(1.0) + sent).min(most);
        let (mut left, mut time) = (bytes, 0.0);
        while window < left && window < enough {
            if window == most {
                let rounds = (left / window).ceil() - 1.0;
                (left, time) = (left - rounds * window, time + rounds * round_trip_s);
                break;
            }
            (left, time) = (left - window, time + round_trip_s);
            window = (2.0 * window).min(most);
        }
        time + left / line
    }

    /// How much longer than the bytes take on the line that is.
    pub fn stall_s(&self, bytes: f64, sent: f64, round_trip_s: f64, line: f64) -> f64 {
        (self.least_s(bytes, sent, round_trip_s, line) - bytes / line).max(0.0)
    }
}
