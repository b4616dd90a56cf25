# A real Slurm of two nodes on loopback, to be sourced inside `isolated.sh`.
#
#   cluster_up DIR      munged, slurmctld and the nodes n1 and n2, with all that they write in DIR
#   node_up n1          starts a node, or starts it again
#   power_loss n1       the node is gone with everything that ran on it
#   kill_slurmd n1      only the node's daemon dies; its tasks go on, and Slurm runs them again
#   restart_slurmd n1   after kill_slurmd
#   tasks_of n1         the processes of its tasks
#
# Two partitions over the same nodes: jobs of `high` take nodes away from jobs of `low`.

NODES="n1 n2"

cluster_up() {
    CLUSTER=$1
    mkdir -p "$CLUSTER"/{munge,state,log,spool}
    chmod 711 "$CLUSTER" "$CLUSTER/munge"
    export SLURM_CONF=$CLUSTER/slurm.conf
    slurm_conf >"$SLURM_CONF"
    (umask 077; head -c 128 /dev/urandom >"$CLUSTER/munge/key")
    munged --key-file="$CLUSTER/munge/key" --socket="$CLUSTER/munge/sock" \
        --pid-file="$CLUSTER/munge/pid" --log-file="$CLUSTER/munge/log" \
        --seed-file="$CLUSTER/munge/seed"
    slurmctld -f "$SLURM_CONF"
    local node
    for node in $NODES; do node_up "$node"; done
    wait_until 20 nodes_idle
}

slurm_conf() {
    local host node port=17000
    host=$(hostname -s)
    cat <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# How long a job that lost its node waits; less than 5 is not taken.
AuthInfo=socket=$CLUSTER/munge/sock,cred_expire=5
StateSaveLocation=$CLUSTER/state
SlurmdSpoolDir=$CLUSTER/spool/%n
SlurmctldPidFile=$CLUSTER/slurmctld.pid
SlurmdPidFile=$CLUSTER/slurmd-%n.pid
SlurmctldLogFile=$CLUSTER/log/slurmctld
SlurmdLogFile=$CLUSTER/log/slurmd-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
# More cores and memory than there may be.
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1
SlurmdTimeout=2
MessageTimeout=2
KillWait=2
MaxArraySize=65
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
CONF
    for node in $NODES; do
        port=$((port + 1))
        echo "NodeName=$node NodeHostname=$host NodeAddr=127.0.0.1 Port=$port CPUs=4" \
            "RealMemory=16000 State=UNKNOWN"
    done
    echo "PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE"
    echo "PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF"
}

# A node is a PID namespace: what keeps it alive is not slurmd, so that slurmd can die alone.
node_up() {
    mkdir -p "$CLUSTER/spool/$1"
    setsid unshare --pid --fork --mount-proc --kill-child bash -c \
        'slurmd -D -f "$1" -N "$2" & while :; do sleep 3600 & wait $!; done' _ \
        "$SLURM_CONF" "$1" >>"$CLUSTER/log/$1" 2>&1 </dev/null &
    echo $! >"$CLUSTER/node-$1.pid"
    disown
}

power_loss() {
    kill -9 "$(cat "$CLUSTER/node-$1.pid")"
}

# Everything here is in the namespace of the test: the pattern finds no other slurmd.
kill_slurmd() {
    pkill -9 -f "^slurmd -D -f $SLURM_CONF -N $1\$"
}

restart_slurmd() {
    setsid nsenter --target "$(init_of "$1")" --pid --mount \
        slurmd -D -f "$SLURM_CONF" -N "$1" >>"$CLUSTER/log/$1" 2>&1 </dev/null &
    disown
}

tasks_of() {
    local pid nodes
    nodes=$(readlink "/proc/$(init_of "$1")/ns/pid")
    for pid in $(pgrep -f 'sweep exec'); do
        [ "$(readlink "/proc/$pid/ns/pid")" != "$nodes" ] || echo "$pid"
    done
}

# The first process of a node.
init_of() { pgrep -P "$(cat "$CLUSTER/node-$1.pid")"; }

nodes_idle() {
    [ "$(sinfo --noheader --Node --partition=low --states=idle 2>/dev/null | wc -l)" = 2 ]
}
