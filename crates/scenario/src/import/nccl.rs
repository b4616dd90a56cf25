//! NCCL's topology file (`NCCL_TOPO_DUMP_FILE`, `NCCL_TOPO_FILE`): the inside of one server.
//!
//! GPUs and NICs hang on PCI bridges below CPUs. A GPU uses the NIC with which it shares the
//! longest way from the top, the least used of equals: NCCL's path types PIX, PXB, PHB, SYS in this
//! order. NICs that are left over go to a GPU that has no nearer one, for NCCL spreads its channels
//! over all that are equally near (`ncclTopoGetLocalNet`). How GPUs reach each other is told by
//! where their `nvlink`s lead: to an NVSwitch (class 0x068000), to other GPUs, or nowhere. Source:
//! NCCL 2.30 `src/graph/xml.cc`, `topo.cc`.

use fabric::hardware::ScaleUpKind;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;
use serde_json::Value as Json;
use units::{Budget, Rate};

use super::LineError;

/// The most GPUs or NICs of a server.
const MOST: usize = 1024;

/// The inside of one server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Server {
    /// How many GPUs there are.
    pub gpus: u32,
    /// Names of the NICs, in order of NCCL's device numbers.
    pub nics: Vec<String>,
    /// For each GPU, in order of its device number, the NICs that it uses.
    pub affinity: Vec<Vec<u32>>,
    /// Rate of the slowest NIC.
    pub nic_rate: Option<Rate>,
    /// How GPUs reach each other.
    pub scale_up: Option<ScaleUpKind>,
    /// What PCIe carries to a GPU in one direction.
    pub pcie: Option<Rate>,
    /// NVLinks of a GPU.
    pub nvlinks: u32,
}

impl Server {
    /// What it says, by keys of the scenario.
    pub fn settings(&self) -> Vec<(&'static str, Json)> {
        let nics = self.nics.len().max(1);
        let mut said = vec![
            ("cluster.gpus_per_node", Json::from(self.gpus)),
            ("cluster.nics_per_node", Json::from(nics)),
            ("cluster.nic_affinity", Json::from(self.affinity.clone())),
        ];
        let text = |key, value: Option<String>| value.map(|value| (key, Json::from(value)));
        said.extend(text("cluster.nic_rate", self.nic_rate.map(|rate| rate.to_string())));
        said.extend(text("cluster.pcie", self.pcie.map(|rate| rate.to_string())));
        let kind = self.scale_up.and_then(|kind| serde_json::to_value(kind).ok());
        said.extend(kind.map(|kind| ("cluster.scale_up.kind", kind)));
        said
    }
}

/// A GPU or NIC, and the numbers of the elements above it.
#[derive(Clone, Debug, Default)]
struct Leaf {
    device: u32,
    name: String,
    above: Vec<usize>,
    mbps: f64,
}

impl Leaf {
    /// How much of the way from the top two of them share.
    fn shared(&self, other: &Self) -> usize {
        self.above.iter().zip(&other.above).take_while(|(one, other)| one == other).count()
    }
}

#[derive(Debug, Default)]
struct ServerParts {
    gpus: Vec<Leaf>,
    nets: Vec<Leaf>,
    to_switch: u32,
    to_gpu: u32,
    pcie_bps: Option<f64>,
}

pub(crate) fn read(text: &str, budget: &mut Budget) -> Result<Server, LineError> {
    let mut reader = Reader::from_str(text);
    let mut found = ServerParts::default();
    let mut above: Vec<usize> = Vec::new();
    // The bandwidth of the innermost PCI device, by depth.
    let mut pci: Vec<Option<f64>> = Vec::new();
    let mut elements = 0;
    loop {
        let line = |reader: &Reader<&[u8]>| {
            let at = (reader.buffer_position() as usize).min(text.len());
            1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count()
        };
        let event = reader.read_event();
        match event {
            Err(error) => return Err((line(&reader), format!("is not XML: {error}"))),
            Ok(Event::Eof) if above.is_empty() => break,
            Ok(Event::Eof) => return Err((line(&reader), "it ends too early".to_owned())),
            Ok(Event::Start(element)) => {
                let wrong = |reason: String| (line(&reader), reason);
                found.add(&element, &above, &mut pci).map_err(wrong)?;
                elements += 1;
                above.push(elements);
                let spent = budget.spend_items(1);
                let spent = spent.and_then(|()| budget.allow_depth(above.len() as u64));
                spent.map_err(|over| wrong(over.to_string()))?;
            }
            Ok(Event::Empty(element)) => {
                let wrong = |reason: String| (line(&reader), reason);
                found.add(&element, &above, &mut pci).map_err(wrong)?;
                pci.truncate(above.len());
            }
            Ok(Event::End(_)) => {
                above.pop();
                pci.truncate(above.len());
            }
            Ok(_) => {}
        }
    }
    found.server()
}

impl ServerParts {
    fn add(
        &mut self,
        element: &BytesStart<'_>,
        above: &[usize],
        pci: &mut Vec<Option<f64>>,
    ) -> Result<(), String> {
        let text = |name: &str| attribute(element, name);
        let number = |name: &str| -> Result<Option<f64>, String> {
            let Some(text) = text(name)? else { return Ok(None) };
            let digits = text.split_whitespace().next().unwrap_or_default();
            match digits.parse::<f64>() {
                Ok(number) if number.is_finite() && 0.0 <= number => Ok(Some(number)),
                _ => Err(format!("`{name}` is `{text}`, not a number")),
            }
        };
        let mut own = pci.last().copied().flatten();
        match element.name().as_ref() {
            b"pci" => {
                let speed = number("link_speed")?;
                let width = number("link_width")?;
                own = speed.zip(width).filter(|(gt, lanes)| 0.0 < gt * lanes).map(|(gt, lanes)| {
                    // 8b/10b up to PCIe 2.0, 128b/130b from 3.0 on.
                    let coding = if gt < 8.0 { 0.8 } else { 128.0 / 130.0 };
                    gt * 1e9 * lanes * coding
                });
            }
            b"gpu" => {
                let device = number("dev")?.unwrap_or(self.gpus.len() as f64) as u32;
                self.gpus.push(Leaf { device, above: above.to_vec(), ..Leaf::default() });
                self.pcie_bps = self.pcie_bps.into_iter().chain(own).reduce(f64::min);
            }
            b"net" => {
                let device = number("dev")?.unwrap_or(self.nets.len() as f64) as u32;
                let name = text("name")?.unwrap_or_else(|| format!("net{device}"));
                let mbps = number("speed")?.unwrap_or(0.0);
                self.nets.push(Leaf { device, name, above: above.to_vec(), mbps });
            }
            b"nvlink" => {
                let count = number("count")?.unwrap_or(1.0) as u32;
                let class = text("tclass")?.unwrap_or_default();
                let links = if class.starts_with("0x0680") {
                    &mut self.to_switch
                } else {
                    &mut self.to_gpu
                };
                *links = links.saturating_add(count);
            }
            _ => {}
        }
        pci.push(own);
        if MOST < self.gpus.len().max(self.nets.len()) {
            return Err(format!("a server has at most {MOST} GPUs and {MOST} NICs"));
        }
        Ok(())
    }

    fn server(mut self) -> Result<Server, LineError> {
        if self.gpus.is_empty() {
            return Err((0, "it has no GPU: is this an NCCL topology file?".to_owned()));
        }
        self.gpus.sort_by_key(|gpu| gpu.device);
        self.nets.sort_by_key(|net| net.device);
        let affinity = self.affinity();
        let gpus = self.gpus.len() as u32;
        let scale_up = match (self.to_switch, self.to_gpu) {
            _ if gpus == 1 => None,
            (0, 0) => Some(ScaleUpKind::Pcie),
            (0, _) => Some(ScaleUpKind::Mesh),
            _ => Some(ScaleUpKind::Switched),
        };
        let slowest = self.nets.iter().map(|net| net.mbps).filter(|mbps| 0.0 < *mbps);
        let slowest = slowest.reduce(f64::min);
        Ok(Server {
            gpus,
            nics: self.nets.into_iter().map(|net| net.name).collect(),
            affinity,
            nic_rate: slowest.map(|mbps| Rate::from_bps_f64((mbps * 1e6).min(1e18))),
            scale_up,
            pcie: self.pcie_bps.map(|bps| Rate::from_bps_f64(bps.min(1e18))),
            nvlinks: self.to_switch.max(self.to_gpu) / gpus,
        })
    }

    /// The NICs of each GPU: the nearest one, and then those nearest ones that nobody has.
    fn affinity(&self) -> Vec<Vec<u32>> {
        let mut used = vec![0; self.nets.len()];
        let mut affinity: Vec<Vec<u32>> = Vec::new();
        for gpu in &self.gpus {
            let nearest = (0..self.nets.len())
                .min_by_key(|net| (usize::MAX - gpu.shared(&self.nets[*net]), used[*net], *net));
            if let Some(net) = nearest {
                used[net] += 1;
                affinity.push(vec![net as u32]);
            }
        }
        for net in (0..self.nets.len()).filter(|net| used[*net] == 0) {
            let is_nearest = |(at, own): &(usize, &mut Vec<u32>)| {
                let gpu = &self.gpus[*at];
                gpu.shared(&self.nets[own[0] as usize]) == gpu.shared(&self.nets[net])
            };
            let near = affinity.iter_mut().enumerate().filter(is_nearest);
            if let Some((_, own)) = near.min_by_key(|(_, own)| own.len()) {
                own.push(net as u32);
            }
        }
        affinity
    }
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Result<Option<String>, String> {
    for attribute in element.attributes() {
        let attribute = attribute.map_err(|error| format!("is not XML: {error}"))?;
        if attribute.key.as_ref() == name.as_bytes() {
            let value = attribute.unescape_value().map_err(|error| error.to_string())?;
            return Ok(Some(value.into_owned()));
        }
    }
    Ok(None)
}
