//! Traces: what profilers recorded, and workloads for simulators.
