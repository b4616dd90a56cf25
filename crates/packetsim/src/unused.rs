//! Settings that the packet engine does not obey, given the others.
//!
//! What only a run can tell (a queue that never reaches its threshold, a timeout that never ends)
//! is obeyed and not named here.

use fabric::hardware::Reorder;
use fabric::routing::Chooser;
use units::UnusedKeys;

use crate::admission::AdmissionPolicy;
use crate::buffer::{BufferConfig, EcnConfig, Organisation};
use crate::nic::{AfterIdle, Service, Verb};
use crate::settings::{ControlClass, Overflow, Settings};

impl EcnConfig {
    /// Names what has no effect on marks.
    pub fn unused(&self, idle: &mut UnusedKeys) {
        if !self.enabled {
            idle.all_but("", &["enabled", "when"], "switches do not mark", "`enabled = true`");
        } else if self.min == self.max {
            idle.key("probability", "`min` and `max` are one threshold", "`min` below `max`");
        }
    }
}

impl Settings {
    /// Names what has no effect on packets; `faults` tells whether anything fails in the run.
    pub fn unused(&self, faults: bool, idle: &mut UnusedKeys) {
        idle.table("routing", |idle| self.routing.unused(Chooser::Switch, idle));
        self.unused_headers(faults, idle);
        self.unused_by_nics(faults, idle);
        self.unused_by_switches(faults, idle);
        self.unused_buffers(idle);
        self.unused_marks(idle);
        self.unused_lanes(faults, idle);
        idle.table("congestion", |idle| self.congestion.unused(idle));
        for (tier, own) in &self.congestion_of_tier {
            idle.table(&format!("congestion_of_tier.{tier}"), |idle| own.unused(idle));
        }
        idle.table("nic", |idle| self.nic.unused_cores(idle));
        if !self.scheduled.enabled {
            let (why, used_by) = ("no fabric is scheduled", "network.transport=scheduled-ethernet");
            idle.all_but("scheduled", &["enabled"], why, used_by);
        }
        let needs = self.needs();
        if needs.credit.is_some() {
            let why = "the congestion control hands out its own credit";
            idle.key("admission", why, "another network.congestion.control");
        } else if self.admission.policy == AdmissionPolicy::None {
            let why = "nobody asks for clearance";
            idle.all_but("admission", &["policy"], why, "network.admission.policy=receiver-driven");
        }
    }

    /// Whether some data is paused rather than dropped.
    fn pauses_data(&self) -> bool {
        let mut lanes = 0..self.credits.lanes;
        let lossless = lanes.any(|lane| !self.pfc.lossy_lanes.contains(&lane));
        self.pfc.enabled && !self.credits.enabled && lossless
    }

    /// Whether pause frames are sent at all: with credits only where a host is slow.
    fn has_pause_frames(&self, faults: bool) -> bool {
        self.pauses_data() || (self.credits.enabled && self.has_slow_hosts(faults))
    }

    fn has_slow_hosts(&self, faults: bool) -> bool {
        self.nic.host_rate().is_some() || faults
    }

    /// Whether receivers clear what is sent.
    fn has_grants(&self) -> bool {
        let policy = self.admission.policy;
        let credit = self.needs().credit;
        policy != AdmissionPolicy::None || credit.is_some() || self.nic.verb == Verb::Read
    }

    /// Why nothing is acknowledged, and what would be: answers to reads, or an unreliable service.
    fn unacknowledged(&self) -> Option<[&'static str; 2]> {
        if self.nic.service != Service::Rc {
            return Some(["nothing is acknowledged", "network.nic.service=rc"]);
        }
        let reads = self.nic.verb == Verb::Read && self.needs().no_acks;
        reads.then_some(["answers to reads are not acknowledged", "another network.nic.verb"])
    }

    fn unused_headers(&self, faults: bool, idle: &mut UnusedKeys) {
        let mut header = |key: &str, why: &str, used_by: &str| {
            idle.key(&format!("packet.headers.{key}"), why, used_by);
        };
        if self.nic.verb == Verb::Send {
            header("first", "a send does not say where to", "network.nic.verb=write");
        }
        if self.nic.verb != Verb::WriteWithImmediate {
            let used_by = "network.nic.verb=write-with-immediate";
            header("last", "messages end without immediate data", used_by);
        }
        if let Some([why, used_by]) = self.unacknowledged() {
            header("ack", why, used_by);
        }
        if !self.has_grants() || self.nic.verb == Verb::Read {
            let used_by = "network.admission.policy=receiver-driven";
            header("grant", "no clear-to-send messages are sent", used_by);
        }
        if !self.has_pause_frames(faults) {
            header("pause", "no pause frames are sent", "network.pfc.enabled=true");
        }
    }

    fn unused_by_nics(&self, faults: bool, idle: &mut UnusedKeys) {
        let mut nic = |key: &str, why: &str, used_by: &str| {
            idle.key(&format!("nic.{key}"), why, used_by);
        };
        if let Some([why, used_by]) = self.unacknowledged() {
            nic("ack_every", why, used_by);
        }
        if self.nic.service != Service::Rc {
            for key in ["reorder", "reorder_window", "timeout", "retries"] {
                nic(key, "what is lost is not sent again", "network.nic.service=rc");
            }
        }
        if self.nic.service == Service::Ud {
            nic("verb", "datagrams are sends", "network.nic.service=rc");
        }
        if self.nic.reorder != Reorder::DirectPlacement {
            let used_by = "network.nic.reorder=direct-placement";
            nic("reorder_window", "packets out of order are not placed directly", used_by);
        }
        if self.nic.after_idle != AfterIdle::Restart {
            nic("idle_reset", "rates are kept", "network.nic.after_idle=restart");
        }
        if !self.has_pause_frames(faults) {
            nic("acks_while_paused", "nothing is paused", "network.pfc.enabled=true");
        }
        if !self.has_slow_hosts(faults) {
            nic("receive_buffer", "hosts take everything at once", "network.nic.pcie");
        }
    }

    fn unused_by_switches(&self, faults: bool, idle: &mut UnusedKeys) {
        let mut switch = |key: &str, why: &str, used_by: &str| {
            idle.key(&format!("switch.{key}"), why, used_by);
        };
        if !self.has_grants() {
            let used_by = "network.admission.policy=receiver-driven";
            switch("grants", "no clear-to-send messages are sent", used_by);
        }
        if self.credits.enabled {
            let why = "with credits nothing is sent that has no room";
            switch("overflow", why, "a transport without credits");
        }
        if !faults && self.loss == 0.0 {
            switch("link_retry", "no packet is damaged", "network.loss or [[faults]]");
        }
        let with_data = |class: ControlClass| class == ControlClass::WithData;
        let grants_with_data = !self.has_grants() || with_data(self.switch.grants);
        let trims = self.switch.overflow == Overflow::Trim;
        if with_data(self.switch.acks) && grants_with_data && !trims {
            let why = "nothing waits in a class of its own";
            switch("control_share", why, "network.switch.acks=own");
        }
    }

    fn unused_buffers(&self, idle: &mut UnusedKeys) {
        if self.credits.enabled {
            let (why, used_by) = ("credits are counted instead", "a transport without credits");
            idle.key("buffer", why, used_by);
            idle.key("buffer_of_tier", why, used_by);
            return;
        }
        let tiers = self.buffer_of_tier.iter();
        let tiers = tiers.map(|(name, buffer)| (format!("buffer_of_tier.{name}"), buffer));
        let all: [(String, &BufferConfig); 1] = [("buffer".to_owned(), &self.buffer)];
        for (path, buffer) in all.into_iter().chain(tiers) {
            let mut key = |key: &str, why: &str, used_by: &str| {
                idle.key(&format!("{path}.{key}"), why, used_by);
            };
            if !self.pauses_data() {
                key("headroom", "no class is lossless", "network.pfc.enabled=true");
                key("alpha", "no class is lossless", "network.pfc.enabled=true");
            } else if buffer.organisation == Organisation::DeepVoq {
                key("alpha", "virtual output queues share nothing", "organisation=shared");
            }
        }
    }

    fn unused_marks(&self, idle: &mut UnusedKeys) {
        let lanes = usize::from(self.credits.lanes);
        let each_has_its_own = lanes <= self.ecn_of_lane.len();
        idle.table("ecn", |idle| self.ecn.unused(idle));
        for (lane, ecn) in self.ecn_of_lane.iter().enumerate() {
            idle.table(&format!("ecn_of_lane.{lane}"), |idle| {
                ecn.unused(idle);
                idle.key("when", "all lanes are looked at alike", "network.ecn.when");
            });
        }
        for (tier, ecn) in &self.ecn_of_tier {
            idle.table(&format!("ecn_of_tier.{tier}"), |idle| {
                ecn.unused(idle);
                idle.key("when", "all tiers are looked at alike", "network.ecn.when");
            });
        }
        if each_has_its_own {
            let why = "each lane has thresholds of its own";
            idle.all_but("ecn", &["when"], why, "fewer entries of network.ecn_of_lane");
        }
        if !self.all_marks().any(|ecn| ecn.enabled) {
            idle.key("ecn.when", "switches do not mark", "network.ecn.enabled=true");
        }
    }

    fn unused_lanes(&self, faults: bool, idle: &mut UnusedKeys) {
        let on = "network.pfc.enabled=true";
        if self.credits.enabled {
            idle.key("pfc.enabled", "credits take its place", "a transport without credits");
        }
        if !self.has_pause_frames(faults) {
            let but = ["enabled", "lossy_lanes", "xon_below"];
            idle.all_but("pfc", &but, "no pause frames are sent", on);
        } else if self.pfc.watchdog.is_none_or(|limit| limit.as_ps() == 0) {
            idle.key("pfc.action", "no watchdog looks", "network.pfc.watchdog");
        }
        if !self.pauses_data() {
            idle.key("pfc.xon_below", "no class is lossless", on);
        }
        if !self.pfc.enabled {
            idle.key("pfc.lossy_lanes", "no class is lossless", on);
        }
        if !self.credits.enabled {
            let (why, used_by) = ("no credits are counted", "network.transport=infiniband");
            idle.key("credits.buffer", why, used_by);
            idle.key("credits.spare", why, used_by);
        } else if self.credits.buffer.is_some() {
            let why = "`credits.buffer` says how much room there is";
            idle.key("credits.spare", why, "leave out network.credits.buffer");
        }
        if self.credits.lanes == 1 {
            let (why, used_by) = ("data has one lane", "network.credits.lanes above 1");
            for key in ["sl_to_vl", "weights", "high_priority"] {
                idle.key(&format!("credits.{key}"), why, used_by);
            }
        }
        for (tier, own) in &self.credits_of_tier {
            let mut key = |keys: [&str; 2], why: &str, used_by: &str| {
                for key in keys {
                    idle.key(&format!("credits_of_tier.{tier}.{key}"), why, used_by);
                }
            };
            if !self.credits.enabled {
                key(["buffer", "spare"], "no credits are counted", "network.transport=infiniband");
            } else if own.buffer.is_some() {
                let why = "`buffer` says how much room there is";
                key(["spare", "spare"], why, "leave out the tier's buffer");
            }
            if self.credits.lanes == 1 {
                let (why, used_by) = ("data has one lane", "network.credits.lanes above 1");
                key(["weights", "high_priority"], why, used_by);
            }
        }
    }
}
