//! Captures: packets of RoCEv2 and InfiniBand.
