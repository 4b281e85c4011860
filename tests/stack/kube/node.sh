#!/bin/bash
# One Kubernetes node: `node.sh FOLDER KUBE_NODE CNI_PLUGINS ETCD`, process 1 of namespaces of its own (process ids,
# mounts, network). When it ends, everything it started ends, and so do the mounts. Images come from FOLDER/images.tar.
set -euo pipefail
cd "$1"
folder=$PWD kube=$2 plugins=$3 etcd=$4
mount --make-rprivate /
mount -t tmpfs tmpfs /run
ip link set lo up
# An address that is not loopback: kubelet wants one. Nothing is behind it.
ip link add uplink type bridge
ip addr add 10.99.0.1/24 dev uplink
ip link set uplink up
ip route add default via 10.99.0.254
mkdir cni.d logs
openssl genrsa -out sa.key 2048 2> /dev/null
echo 'admin,admin,admin,"system:masters"' > tokens.csv
cat > kubeconfig << END
apiVersion: v1
kind: Config
clusters: [{name: node, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: admin}}]
contexts: [{name: node, context: {cluster: node, user: admin}}]
current-context: node
END
cat > cni.d/10-bridge.conflist << END
{"cniVersion": "0.4.0", "name": "node", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.98.0.0/24"}]], "dataDir": "$folder/ipam",
          "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
cat > containerd.toml << END
version = 2
root = "$folder/containerd"
state = "/run/containerd"
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "registry.k8s.io/pause:3.8"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "$plugins"
conf_dir = "$folder/cni.d"
END
cat > kubelet.yaml << END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
failCgroupV1: false
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
resolvConf: ""
podLogsDir: $folder/logs
address: 10.99.0.1
END
account=(--authentication-kubeconfig kubeconfig --authorization-kubeconfig kubeconfig --kubeconfig kubeconfig)
listen=(--bind-address 127.0.0.1 --cert-dir certs)
"$etcd" --data-dir etcd --unsafe-no-fsync > etcd.log 2>&1 &
containerd --config containerd.toml > containerd.log 2>&1 &
"$kube" kube-apiserver --etcd-servers http://127.0.0.1:2379 "${listen[@]}" --token-auth-file tokens.csv \
  --authorization-mode RBAC --service-account-issuer https://kubernetes.default --service-account-key-file sa.key \
  --service-account-signing-key-file sa.key --service-cluster-ip-range 10.0.0.0/24 --advertise-address 10.99.0.1 \
  --kubelet-preferred-address-types InternalIP > apiserver.log 2>&1 &
until kubectl --kubeconfig kubeconfig get --raw /readyz > /dev/null 2>&1; do sleep 0.3; done
"$kube" kube-controller-manager "${account[@]}" "${listen[@]}" --service-account-private-key-file sa.key \
  --leader-elect=false > controllers.log 2>&1 &
"$kube" kube-scheduler "${account[@]}" "${listen[@]}" --leader-elect=false > scheduler.log 2>&1 &
ctr --namespace k8s.io images import images.tar > images.log 2>&1
"$kube" kubelet --config kubelet.yaml --kubeconfig kubeconfig --root-dir "$folder/kubelet" --cert-dir certs \
  --hostname-override node --node-ip 10.99.0.1 > kubelet.log 2>&1 &
wait
