//! Traffic beside training: what a served model sends, and how new weights reach it.
//!
//! Sizes follow from the model's shape ([`ModelSizes`]). In bf16 a token's keys and values are
//! 327,680 bytes for llama3-70b and 70,272 for deepseek-v3, as published ("Insights into
//! DeepSeek-V3", ISCA 2025, arXiv 2505.09343, table 1, where Qwen-2.5 72B has llama3-70b's shape).
//!
//! * Keys and values: a server that has read a prompt sends what it keeps of it to the server that
//!   will answer, every NIC its part to the NIC with the same number (Splitwise, ISCA 2024, arXiv
//!   2311.18677; Mooncake, FAST 2025, arXiv 2407.00079). Requests take the servers in turn.
//! * Decoding: of a dense model the sums behind attention and feed-forward part of each layer
//!   (Megatron-LM, arXiv 1909.08053); of one with experts a dispatch and a combine in each layer
//!   that has them, with DeepEP's low-latency kernels, and attention stays on its GPU (DeepSeek-V3,
//!   arXiv 2412.19437, section 3.4.2).
//! * New weights: each trainer holds an equal part and writes it to whoever serves it, in every
//!   copy, point to point (Perplexity, "Weight transfer for RL post-training in under 2 seconds",
//!   2025: Kimi-K2's 10¹² parameters in fp8 from 256 to 128 GPUs in 1.3 s).

use units::Bytes;

use crate::collective::{Collective, part};
use crate::pattern::{Flow, Load, MAX_FLOWS, Pattern, Unfit, messages};

/// Tokens of a prompt: the mean of Kimi's trace (Mooncake, arXiv 2407.00079, section 4.2).
const PROMPT: u32 = 7_590;
/// Sequences decoded at once: what DeepEP's low-latency kernels are measured with (README).
const AT_ONCE: u32 = 128;

/// The sizes of a model that is served.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ModelSizes {
    /// Values that attention keeps of every token, in all layers that see all of them.
    pub kept: u64,
    /// The same in layers that see a window only.
    pub kept_in_window: u64,
    /// Tokens of that window.
    pub window: u64,
    /// All parameters.
    pub parameters: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Layers.
    pub layers: u64,
    /// Layers with experts.
    pub moe_layers: u64,
    /// Experts of a token.
    pub top_k: u64,
}

impl ModelSizes {
    /// Values that attention keeps of so many tokens.
    pub fn kept_of(&self, tokens: u64) -> u64 {
        self.kept * tokens + self.kept_in_window * tokens.min(self.window)
    }
}

/// Collectives that follow each other, and how often they all do for one message of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    /// Which, with their sizes as nccl-tests counts them.
    pub each: Vec<(Collective, Bytes)>,
    /// How often.
    pub times: u64,
}

impl Calls {
    /// What one message of the load comes to.
    pub fn bytes(&self) -> Bytes {
        let each: u64 = self.each.iter().map(|(_, bytes)| bytes.get()).sum();
        Bytes::new(each.saturating_mul(self.times))
    }

    /// Operations of one message.
    pub fn count(&self) -> u64 {
        self.each.len() as u64 * self.times
    }
}

/// What the GPUs of a load run, one after the other.
pub fn calls(load: &Load, model: &ModelSizes) -> Calls {
    if load.pattern != Pattern::Decode {
        return Calls { each: vec![(load.collective, load.bytes)], times: 1 };
    }
    let values = u64::from(load.tokens.unwrap_or(AT_ONCE)) * model.hidden;
    let bytes = |values: u64| Bytes::new(values * load.precision.bytes());
    if model.moe_layers == 0 {
        return Calls {
            each: vec![(Collective::AllReduce, bytes(values)); 2],
            times: model.layers,
        };
    }
    let copies = values * model.top_k;
    let dispatch = (Collective::MoeDispatchLowLatency, Bytes::new(copies));
    let combine = (Collective::MoeCombineLowLatency, bytes(copies));
    Calls { each: vec![dispatch, combine], times: model.moe_layers }
}

/// Whether two pools of NICs can be cut into copies of a model.
pub(crate) fn check(load: &Load, hosts: u32) -> Result<(), Unfit> {
    let senders = senders(load, hosts);
    if !(1..hosts).contains(&senders) {
        let most = hosts - 1;
        return Err(("senders", format!("{senders} of {hosts} hosts; 1 to {most} would")));
    }
    let (copy, receivers) = (load.copy, hosts - senders);
    let divides = |hosts: u32| 0 < copy && hosts.is_multiple_of(copy);
    let reads = load.pattern == Pattern::KvTransfer;
    if !divides(receivers) || (reads && !divides(senders)) {
        let pools =
            if reads { format!("{senders} and {receivers}") } else { receivers.to_string() };
        let reason = format!("copies of {copy} NICs do not divide the {pools} hosts; 1 would");
        return Err(("copy", reason));
    }
    if load.tokens == Some(0) {
        return Err(("tokens", "is 0; the least is 1".to_owned()));
    }
    let most = MAX_FLOWS / u64::from(copy);
    if reads && !(1..=most).contains(&u64::from(load.count)) {
        return Err(("count", format!("is {}, but must be from 1 to {most}", load.count)));
    }
    let flows = match load.pattern {
        Pattern::KvTransfer => u64::from(load.count) * u64::from(copy),
        _ => u64::from(senders + copy) * u64::from(receivers / copy),
    };
    messages(load, flows)
}

/// How many of the hosts send.
fn senders(load: &Load, hosts: u32) -> u32 {
    load.senders.unwrap_or(hosts / 2)
}

/// Keys and values of prompts: every NIC of the server that read one sends its part.
pub(crate) fn kv_transfer(load: &Load, hosts: u32, model: &ModelSizes) -> Vec<Flow> {
    let Load { first, copy, messages, count, .. } = *load;
    let senders = senders(load, hosts);
    let tokens = u64::from(load.tokens.unwrap_or(PROMPT));
    let whole = model.kept_of(tokens) * load.precision.bytes();
    let mut flows = Vec::new();
    for request in 0..count {
        let from = first + request % (senders / copy) * copy;
        let to = first + senders + request % ((hosts - senders) / copy) * copy;
        let start = load.start + load.interval * u64::from(request);
        for nic in 0..copy {
            let bytes = Bytes::new(part(whole, copy.into(), nic.into()).max(1));
            flows.push(Flow { src: from + nic, dst: to + nic, bytes, start, messages });
        }
    }
    flows
}

/// New weights: what a trainer holds of a copy's parts goes to the NICs that serve these.
pub(crate) fn weight_push(load: &Load, hosts: u32, model: &ModelSizes) -> Vec<Flow> {
    let Load { first, copy, messages, start, .. } = *load;
    let senders = senders(load, hosts);
    let whole = u128::from(model.parameters * load.precision.bytes());
    let bound = |at: u32, parts: u32| (whole * u128::from(at) / u128::from(parts)) as u64;
    let of = |at: u32, parts: u32| [bound(at, parts), bound(at + 1, parts)];
    let mut flows = Vec::new();
    for server in 0..(hosts - senders) / copy {
        for trainer in 0..senders {
            let [held, end] = of(trainer, senders);
            for nic in (0..copy).filter(|nic| bound(*nic, copy) < end) {
                let [wanted, wanted_end] = of(nic, copy);
                let bytes = end.min(wanted_end).saturating_sub(held.max(wanted));
                if 0 < bytes {
                    let (src, dst) = (first + trainer, first + senders + server * copy + nic);
                    let bytes = Bytes::new(bytes);
                    flows.push(Flow { src, dst, bytes, start, messages });
                }
            }
        }
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Span;

    /// Two layers of llama3-70b's width: 4,096 values of a token are kept.
    const SMALL: ModelSizes = ModelSizes {
        kept: 4_096,
        kept_in_window: 0,
        window: 0,
        parameters: 1_000_003,
        hidden: 8_192,
        layers: 2,
        moe_layers: 0,
        top_k: 0,
    };

    fn load(pattern: Pattern, senders: u32) -> Load {
        Load { pattern, senders: Some(senders), copy: 4, count: 6, ..Load::default() }
    }

    /// Oracle: requests take the servers in turn, and each is whole.
    #[test]
    fn keys_and_values_go_from_pool_to_pool() {
        let load = Load { interval: Span::from_us(5), ..load(Pattern::KvTransfer, 8) };
        assert_eq!(check(&load, 20), Ok(()));
        let flows = kv_transfer(&load, 20, &SMALL);
        assert_eq!(flows.len(), 6 * 4);
        let of = |request: usize| &flows[4 * request..4 * request + 4];
        for request in 0..6 {
            let sum: u64 = of(request).iter().map(|flow| flow.bytes.get()).sum();
            assert_eq!(sum, 7_590 * 4_096 * 2);
            assert_eq!(of(request)[0].start, Span::from_us(5 * request as u64));
        }
        // Two servers read, three answer.
        let ends = |request: usize| (of(request)[1].src, of(request)[1].dst);
        assert_eq!([0, 1, 2, 3].map(ends), [(1, 9), (5, 13), (1, 17), (5, 9)]);
    }

    /// Oracle: every copy gets every byte once, and every trainer sends its part of each.
    #[test]
    fn every_copy_gets_the_whole_model() {
        for senders in [1, 3, 4, 7, 16] {
            let load = load(Pattern::WeightPush, senders);
            let hosts = senders + 8;
            assert_eq!(check(&load, hosts), Ok(()));
            let flows = weight_push(&load, hosts, &SMALL);
            assert!(flows.len() as u64 <= u64::from(senders + 4) * 2);
            let sum = |of: &dyn Fn(&Flow) -> bool| -> u64 {
                flows.iter().filter(|flow| of(flow)).map(|flow| flow.bytes.get()).sum()
            };
            for server in [senders, senders + 4] {
                let served = server..server + 4;
                assert_eq!(sum(&|flow| served.contains(&flow.dst)), 2 * 1_000_003);
            }
            let sent: Vec<u64> = (0..senders).map(|one| sum(&|flow| flow.src == one)).collect();
            let [least, most] = [sent.iter().min(), sent.iter().max()].map(|one| *one.unwrap());
            assert!(most - least <= 2 * 2, "{sent:?}");
        }
    }

    /// Oracle: a dense model sums twice in each layer, experts are asked in every layer of theirs.
    #[test]
    fn decoding_runs_the_collectives_of_each_layer() {
        let load = Load { tokens: Some(16), ..load(Pattern::Decode, 0) };
        let dense = calls(&load, &SMALL);
        assert_eq!(dense.each, [(Collective::AllReduce, Bytes::new(16 * 8_192 * 2)); 2]);
        assert_eq!((dense.times, dense.count()), (2, 4));
        let experts = calls(&load, &ModelSizes { moe_layers: 1, top_k: 8, ..SMALL });
        let copies = 16 * 8_192 * 8;
        let [dispatch, combine] = [experts.each[0], experts.each[1]];
        assert_eq!(dispatch, (Collective::MoeDispatchLowLatency, Bytes::new(copies)));
        assert_eq!(combine, (Collective::MoeCombineLowLatency, Bytes::new(2 * copies)));
        assert_eq!(experts.bytes(), Bytes::new(3 * copies));
    }

    #[test]
    fn pools_that_do_not_fit_are_refused() {
        let key = |load: Load, hosts| check(&load, hosts).unwrap_err().0;
        assert_eq!(key(load(Pattern::KvTransfer, 0), 16), "senders");
        assert_eq!(key(load(Pattern::KvTransfer, 16), 16), "senders");
        assert_eq!(key(load(Pattern::KvTransfer, 6), 14), "copy");
        assert_eq!(check(&load(Pattern::WeightPush, 6), 14), Ok(()));
        assert_eq!(key(Load { copy: 0, ..load(Pattern::WeightPush, 6) }, 14), "copy");
        assert_eq!(key(Load { count: 0, ..load(Pattern::KvTransfer, 8) }, 16), "count");
        assert_eq!(key(Load { tokens: Some(0), ..load(Pattern::KvTransfer, 8) }, 16), "tokens");
    }
}
