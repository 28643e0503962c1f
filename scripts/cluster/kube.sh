#!/usr/bin/env bash
# kube.sh runs a Kubernetes cluster with one node on this machine, without a container engine: the API server, etcd,
# controller manager, scheduler, kubelet and kube-proxy of the module in scripts/cluster/kubernetes, and containerd, runc and
# the network plugins of the distribution. Pods are real processes. Everything is in a network namespace without a route out.
#
#   kube.sh build         build the programs into .cache/cluster/bin (about 20 minutes of CPU time, once per version)
#   kube.sh up            start the cluster
#   kube.sh load FILE...  load archives of images (make images) into the node
#   kube.sh run COMMAND   run a command in the network of the node, with kubectl and helm in PATH
#   kube.sh down          stop the cluster and remove its data
#
# It needs root. There is no DNS: pods use addresses.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=$root/.cache/cluster
bin=$cache/bin
data=$cache/node
# Paths of sockets are short, wherever the repository is.
run=/run/modelgateway-cluster
netns=modelgateway
address=10.200.0.1
version=$(sed -n 's|^.*k8s.io/kubernetes \(v[0-9.]*\).*|\1|p' "$here/kubernetes/go.mod" | head -1)

in_node() { nsenter --net="/run/netns/$netns" -- "$@"; }

build() {
	mkdir -p "$bin"
	local pins
	pins=$(cat "$here/kubernetes/go.sum" "$here/kubernetes/go.mod" | cksum)
	if [ "$(cat "$bin/built" 2>/dev/null)" = "$pins" ]; then return; fi
	local minor=${version#v1.}
	local v=k8s.io/component-base/version
	echo "building Kubernetes $version (once per version)"
	cd "$here/kubernetes"
	export GOWORK=off CGO_ENABLED=0 GOFLAGS=-trimpath
	nice go build -ldflags '-s -w' -o "$bin/etcd" go.etcd.io/etcd/server/v3
	nice go build -o "$bin/" -ldflags "-s -w -X $v.gitVersion=$version -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*} -X $v.gitTreeState=clean" \
		k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubelet,kube-proxy,kubectl}
	echo "$pins" >"$bin/built"
}

# start NAME COMMAND... starts a server of the node and notes its process.
start() {
	local name=$1
	shift
	(exec nsenter --net="/run/netns/$netns" -- "$@") >"$data/log/$name.log" 2>&1 & # exec, so that it is this process
	echo "$! $name" >>"$run/pids"
}

# await NAME COMMAND... waits for a condition.
await() {
	local name=$1
	shift
	for _ in $(seq 600); do
		if "$@" >/dev/null 2>&1; then return; fi
		sleep 0.2
	done
	echo "kube.sh: $name is not ready; the logs are in $data/log" >&2
	exit 1
}

network() {
	ip netns add "$netns"
	ip -n "$netns" link set lo up
	ip -n "$netns" link add node type bridge
	ip -n "$netns" address add "$address/24" dev node
	ip -n "$netns" link set node up
	# Addresses of Services need a route before kube-proxy replaces them.
	ip -n "$netns" route add 10.96.0.0/16 dev node
	in_node sysctl -qw net.ipv4.ip_forward=1
}

control_plane() {
	local token
	token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
	(umask 077 && echo "$token,admin,admin,system:masters" >"$data/tokens.csv")
	(umask 077 && openssl genrsa -out "$data/pki/sa.key" 2048 2>/dev/null)
	openssl rsa -in "$data/pki/sa.key" -pubout -out "$data/pki/sa.pub" 2>/dev/null
	start etcd "$bin/etcd" --name=node --data-dir="$data/etcd" --unsafe-no-fsync --log-level=warn \
		--listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
		--listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 \
		--initial-cluster=node=http://127.0.0.1:2380
	start apiserver "$bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --bind-address=$address --advertise-address=$address \
		--secure-port=6443 --cert-dir="$data/pki" --token-auth-file="$data/tokens.csv" --authorization-mode=Node,RBAC \
		--service-cluster-ip-range=10.96.0.0/16 --allow-privileged=true --service-account-issuer=https://kubernetes.default.svc \
		--service-account-key-file="$data/pki/sa.pub" --service-account-signing-key-file="$data/pki/sa.key" \
		--kubelet-preferred-address-types=InternalIP
	await "the certificate of the API server" test -s "$data/pki/apiserver.crt"
	(umask 077 && cat >"$data/kubeconfig" <<-Y
		{apiVersion: v1, kind: Config, current-context: node,
		clusters: [{name: node, cluster: {server: "https://$address:6443", certificate-authority: "$data/pki/apiserver.crt"}}],
		users: [{name: admin, user: {token: "$token"}}],
		contexts: [{name: node, context: {cluster: node, user: admin, namespace: default}}]}
	Y
	)
	export KUBECONFIG=$data/kubeconfig
	await "the API server" in_node "$bin/kubectl" get --raw /readyz
	start controller-manager "$bin/kube-controller-manager" --kubeconfig="$KUBECONFIG" --leader-elect=false --bind-address=127.0.0.1 \
		--service-account-private-key-file="$data/pki/sa.key" --root-ca-file="$data/pki/apiserver.crt" --cert-dir="$data/pki"
	start scheduler "$bin/kube-scheduler" --kubeconfig="$KUBECONFIG" --leader-elect=false --bind-address=127.0.0.1 --cert-dir="$data/pki"
}

node() {
	# A machine without CAP_SYS_RESOURCE cannot lower the score of the out-of-memory killer, which runc tries otherwise.
	cat >"$data/containerd.toml" <<-T
		version = 2
		root = "$data/containerd"
		state = "$run/containerd"
		[grpc]
		  address = "$run/containerd.sock"
		[plugins."io.containerd.grpc.v1.cri"]
		  sandbox_image = "localhost/modelgateway/pause:1"
		  restrict_oom_score_adj = true
		  [plugins."io.containerd.grpc.v1.cri".cni]
		    bin_dir = "/usr/lib/cni"
		    conf_dir = "$data/cni"
	T
	cat >"$data/cni/10-bridge.conflist" <<-J
		{"cniVersion": "1.0.0", "name": "pods", "plugins": [
		  {"type": "bridge", "bridge": "pods", "isGateway": true, "ipMasq": true, "hairpinMode": true,
		   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "$data/ipam"}}]}
	J
	start containerd containerd -c "$data/containerd.toml"
	await containerd ctr -a "$run/containerd.sock" version
	cat >"$data/kubelet.yaml" <<-Y
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
		authorization: {mode: AlwaysAllow}
		cgroupDriver: cgroupfs
		failCgroupV1: false
		enforceNodeAllocatable: []
		containerRuntimeEndpoint: "unix://$run/containerd.sock"
		failSwapOn: false
		resolvConf: ""
		address: $address
		healthzBindAddress: 127.0.0.1
		imageGCHighThresholdPercent: 100
		evictionHard: {memory.available: 50Mi, nodefs.available: "1%", imagefs.available: "1%"}
	Y
	cat >"$data/proxy.yaml" <<-Y
		apiVersion: kubeproxy.config.k8s.io/v1alpha1
		kind: KubeProxyConfiguration
		clientConnection: {kubeconfig: "$KUBECONFIG"}
		mode: iptables
		clusterCIDR: 10.244.0.0/16
		hostnameOverride: node
		conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
	Y
	load "$cache/pause/pause-linux-$(go env GOARCH).tar"
	start kubelet "$bin/kubelet" --config="$data/kubelet.yaml" --kubeconfig="$KUBECONFIG" --root-dir="$run/kubelet" --cert-dir="$data/pki" \
		--hostname-override=node --node-ip=$address
	start proxy "$bin/kube-proxy" --config="$data/proxy.yaml"
	await "the node" in_node "$bin/kubectl" wait --for=condition=Ready node/node --timeout=1s
}

up() {
	"$root/scripts/need.sh" containerd containerd runc iptables containernetworking-plugins
	if [ -e "$run" ]; then down; fi
	mkdir -p "$run" /run/netns "$data/"{log,pki,cni}
	ls /run/netns >"$run/other-netns"
	echo "$netns" >>"$run/other-netns"
	(cd "$root" && go run ./scripts/cmd/images -out "$cache/pause" -platforms "linux/$(go env GOARCH)" -version 1 \
		-commit "$(git rev-parse HEAD)" -time 2026-01-01T00:00:00Z ./scripts/cluster/pause >/dev/null)
	network
	control_plane
	node
}

load() {
	local file
	for file in "$@"; do ctr -a "$run/containerd.sock" -n k8s.io images import "$file" >/dev/null; done
}

containers() { ctr -a "$run/containerd.sock" -n k8s.io "$@" 2>/dev/null || true; }

# stop NAME... stops servers of the node, the last one first.
stop() {
	local pid name
	tac "$run/pids" | while read -r pid name; do
		case " $* " in *" $name "*) ;; *) continue ;; esac
		kill "$pid" 2>/dev/null || true
		for _ in $(seq 50); do
			if ! kill -0 "$pid" 2>/dev/null; then break; fi
			sleep 0.1
		done
		kill -9 "$pid" 2>/dev/null || true
	done
}

down() {
	if [ ! -e "$run" ]; then return; fi
	local id mount mounts group
	touch "$run/pids"
	stop etcd apiserver controller-manager scheduler kubelet proxy
	for id in $(containers tasks ls -q); do containers tasks kill -s KILL "$id"; done
	sleep 1
	for id in $(containers containers ls -q); do
		containers tasks delete -f "$id"
		containers containers delete "$id"
	done >/dev/null
	stop containerd
	# Shims outlive containerd. Their pods are gone.
	for id in $(pgrep -f "^/usr/bin/containerd-shim-runc-v2 .*-address $run/containerd.sock"); do kill -9 "$id" || true; done
	# A mount can be below another one, or hidden by it.
	for _ in $(seq 10); do
		mounts=$(awk -v a="$run/" -v b="$data/" 'index($2, a) == 1 || index($2, b) == 1 {print $2}' /proc/mounts | sort -r)
		if [ -z "$mounts" ]; then break; fi
		for mount in $mounts; do umount -l "$mount" 2>/dev/null || true; done
		sleep 0.5
	done
	# containerd made these for pods.
	touch "$run/other-netns"
	for id in $(ls /run/netns | grep '^cni-' | grep -vxFf "$run/other-netns"); do ip netns delete "$id"; done || true
	for group in /sys/fs/cgroup/*/kubepods /sys/fs/cgroup/kubepods; do
		if [ -d "$group" ]; then find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true; fi
	done
	ip netns delete "$netns" 2>/dev/null || true
	rm -rf --one-file-system "$run" "$data"
}

case ${1:-} in
build | up | down) "$1" ;;
load) shift; load "$@" ;;
run)
	shift
	export KUBECONFIG=$data/kubeconfig PATH=$bin:$root/.cache/bin:$PATH
	in_node "$@"
	;;
*)
	sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
	exit 2
	;;
esac
