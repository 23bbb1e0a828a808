package deploy

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// What is set arrives where it is meant for.
func TestAgent(t *testing.T) {
	var set *appsv1.DaemonSet
	for _, one := range render(t, everything) {
		if one.Kind == "DaemonSet" {
			set = decoded(t, one).(*appsv1.DaemonSet)
		}
	}
	pod := set.Spec.Template.Spec
	container := pod.Containers[0]
	if container.Image != "registry.example/aliquot:v9" || container.ImagePullPolicy != corev1.PullAlways || len(pod.ImagePullSecrets) != 2 {
		t.Errorf("the image is %s (%s, %v)", container.Image, container.ImagePullPolicy, pod.ImagePullSecrets)
	}
	if !pod.HostPID || !pod.HostNetwork || pod.NodeSelector["gpu"] != "true" || pod.ServiceAccountName != "aliquot-agent" {
		t.Errorf("the pod is %+v", pod)
	}
	for _, want := range []string{"agent", "--simulate=h200x2,a10x4", "--unenforced=stop", "--latency-class=1@NVIDIA H200,2@A10,3", "--node-name=$(NODE_NAME)"} {
		if !slices.Contains(container.Args, want) {
			t.Errorf("its arguments are %v, without %s", container.Args, want)
		}
	}
	// Two of a node run for a while, and neither may have its port for itself.
	if update := set.Spec.UpdateStrategy.RollingUpdate; update.MaxSurge.String() != "10%" || update.MaxUnavailable.IntValue() != 0 || len(container.Ports) > 0 {
		t.Errorf("agents are replaced by %+v, and have the ports %+v", update, container.Ports)
	}
	environment := map[string]string{}
	for _, variable := range container.Env {
		environment[variable.Name] = variable.Value
	}
	if environment["KUBERNETES_SERVICE_HOST"] != "127.0.0.1" || environment["KUBERNETES_SERVICE_PORT"] != "6444" {
		t.Errorf("its environment is %v", environment)
	}
	// What the container runtime and other pods find by path is at that path in the pod, too.
	for _, mount := range container.VolumeMounts {
		for _, volume := range pod.Volumes {
			if volume.Name == mount.Name && volume.HostPath != nil && volume.HostPath.Path != mount.MountPath && mount.Name != "groups" {
				t.Errorf("%s of the node is %s in the pod", volume.HostPath.Path, mount.MountPath)
			}
		}
	}
}

// Where nothing is simulated agents look for the driver in their nodes' root, or where they are told to, see what is mounted there later, and have the node's
// device files, for those that come later, too. Where devices are simulated they have neither.
func TestAgentsOwnDriver(t *testing.T) {
	for set, want := range map[string]struct{ root, above, mount string }{ // a driver's container that is started anew mounts its root again, which is seen from above it alone
		"{}": {"/", "/", "/driver"}, "agent: {driverRoot: /run/nvidia/driver/}": {"/run/nvidia/driver/", "/run/nvidia", "/driver/driver"}, "agent: {simulate: h200x1}": {},
	} {
		for _, one := range render(t, set) {
			if one.Kind != "DaemonSet" {
				continue
			}
			pod := decoded(t, one).(*appsv1.DaemonSet).Spec.Template.Spec
			paths := map[string]string{}
			for _, volume := range pod.Volumes {
				if volume.HostPath != nil {
					paths[volume.Name] = volume.HostPath.Path
				}
			}
			container := pod.Containers[0]
			mounts := map[string]corev1.VolumeMount{}
			for _, mount := range container.VolumeMounts {
				mounts[mount.Name] = mount
			}
			driver := mounts["driver"]
			told := slices.Contains(container.Args, "--driver-root="+want.root) && slices.Contains(container.Args, "--driver-mount="+want.mount)
			sees := driver.MountPath == "/driver" && driver.ReadOnly && driver.MountPropagation != nil && *driver.MountPropagation == corev1.MountPropagationHostToContainer
			if paths["driver"] != want.above || told != (want.root != "") || sees != (want.root != "") {
				t.Errorf("with %s the driver is looked for in %q: %v, %+v", set, paths["driver"], container.Args, driver)
			}
			if has := paths["dev"] == "/dev" && mounts["dev"].MountPath == "/dev"; has != (want.root != "") {
				t.Errorf("with %s the device files are %q at %q", set, paths["dev"], mounts["dev"].MountPath)
			}
			if strings.HasPrefix(container.TerminationMessagePath, "/dev/") { // as it is by default: the node's, then
				t.Errorf("its last words are %s of the node", container.TerminationMessagePath)
			}
		}
	}
}

// Each account has a role of its own and is used; none may do anything to everything.
func TestRoles(t *testing.T) {
	var accounts, bound []string
	roles := map[string][]rbacv1.PolicyRule{}
	for _, one := range render(t, everything) {
		switch object := decoded(t, one).(type) {
		case *rbacv1.ClusterRole:
			roles[object.Name] = object.Rules
		case *rbacv1.Role:
			roles[object.Name] = object.Rules
		case *corev1.ServiceAccount:
			accounts = append(accounts, object.Name)
		case *rbacv1.ClusterRoleBinding:
			bound = append(bound, subject(t, object.Subjects, object.RoleRef))
		case *rbacv1.RoleBinding:
			bound = append(bound, subject(t, object.Subjects, object.RoleRef))
		}
	}
	for _, account := range accounts {
		if !slices.Contains(bound, account) {
			t.Errorf("account %s has no role", account)
		}
	}
	for name, given := range roles {
		if len(given) == 0 {
			t.Errorf("role %s allows nothing", name)
		}
		for _, rule := range given {
			if all := slices.Concat(rule.Verbs, rule.Resources, rule.APIGroups, rule.NonResourceURLs); slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, "*") }) {
				t.Errorf("role %s has a wildcard: %+v", name, rule)
			}
			for _, verb := range rule.Verbs {
				if slices.Contains([]string{"escalate", "bind", "impersonate"}, verb) {
					t.Errorf("role %s may %s", name, verb)
				}
			}
		}
	}
}

// subject is the one account that a role is given to. A role is never another account's.
func subject(t *testing.T, subjects []rbacv1.Subject, role rbacv1.RoleRef) string {
	t.Helper()
	if len(subjects) != 1 || subjects[0].Kind != "ServiceAccount" || !strings.HasPrefix(role.Name, subjects[0].Name) && role.Name != "extension-apiserver-authentication-reader" {
		t.Fatalf("role %s is given to %+v", role.Name, subjects)
	}
	return subjects[0].Name
}

// Only agents are privileged: whatever else runs passes Pod Security of the level restricted, as the API server would check it.
func TestPodSecurity(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	tried := 0
	for _, one := range render(t, everything) {
		var template corev1.PodTemplateSpec
		switch object := decoded(t, one).(type) {
		case *appsv1.Deployment:
			template = object.Spec.Template
		case *appsv1.DaemonSet:
			template = object.Spec.Template
		case *corev1.Namespace:
			if object.Labels[podsecurity.EnforceLevelLabel] != string(podsecurity.LevelPrivileged) {
				t.Errorf("the namespace lets no agents in: %v", object.Labels)
			}
			continue
		default:
			continue
		}
		tried++
		result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &template.ObjectMeta, &template.Spec))
		if agent := one.Name == "aliquot-agent"; result.Allowed == agent {
			t.Errorf("%s: allowed is %t; %s", one.Name, result.Allowed, result.ForbiddenDetail())
		}
	}
	if tried == 0 {
		t.Error("the chart runs nothing")
	}
}

// A NetworkPolicy that selects no pod protects none. Each lets its pods connect to API servers' ports alone: within the addresses that are given, or on any host.
func TestNetworkPolicies(t *testing.T) {
	networkPolicies(t, everything, nil, nil)
	bounded := strings.Replace(everything, `port: "6444"}`, `port: "6444", cidrs: [10.0.0.0/28, "fd00::1/128"]}`, 1) + "networkPolicy: {metricsFromCIDRs: [10.1.0.0/16]}\n"
	networkPolicies(t, bounded, []string{"10.0.0.0/28", "fd00::1/128"}, []string{"10.1.0.0/16"})
}

// networkPolicies checks those of a chart with these values: where their pods may connect to, nil for anywhere, and from where metrics are read beside a namespace.
func networkPolicies(t *testing.T, values string, to, from []string) {
	t.Helper()
	labelled := map[string]bool{}
	var policies []*networkingv1.NetworkPolicy
	for _, one := range render(t, values) {
		switch object := decoded(t, one).(type) {
		case *appsv1.DaemonSet:
			labelled[object.Spec.Template.Labels["app.kubernetes.io/name"]] = true
		case *appsv1.Deployment:
			labelled[object.Spec.Template.Labels["app.kubernetes.io/name"]] = true
		case *networkingv1.NetworkPolicy:
			policies = append(policies, object)
		}
	}
	for _, policy := range policies {
		name := policy.Spec.PodSelector.MatchLabels["app.kubernetes.io/name"]
		if !labelled[name] || len(policy.Spec.PolicyTypes) != 2 || len(policy.Spec.Egress) != 1 || len(policy.Spec.Ingress) == 0 {
			t.Errorf("policy %s is %+v", policy.Name, policy.Spec)
			continue
		}
		var ports []int
		for _, port := range policy.Spec.Egress[0].Ports {
			ports = append(ports, port.Port.IntValue())
		}
		if hosts := blocks(policy.Spec.Egress[0].To); !slices.Equal(hosts, to) || !slices.Equal(ports, []int{443, 6443, 6444}) {
			t.Errorf("policy %s lets its pods connect to ports %v of %v, want %v", policy.Name, ports, hosts, to)
		}
		metrics := policy.Spec.Ingress[len(policy.Spec.Ingress)-1].From
		if hosts := blocks(metrics); len(metrics) != len(from)+1 || !slices.Equal(hosts, from) {
			t.Errorf("policy %s has metrics read from %+v, want one namespace and %v", policy.Name, metrics, from)
		}
		delete(labelled, name)
	}
	for name := range labelled {
		t.Errorf("pods of %s have no policy", name)
	}
}

// blocks are the addresses among those whom a policy speaks of.
func blocks(peers []networkingv1.NetworkPolicyPeer) (all []string) {
	for _, peer := range peers {
		if peer.IPBlock != nil {
			all = append(all, peer.IPBlock.CIDR)
		}
	}
	return all
}

// Whatever runs is looked at: kubelet starts anew what is stuck, calls what is not ready by nobody's name, and does both at a port that is served.
func TestProbes(t *testing.T) {
	for _, one := range render(t, everything) {
		var pod corev1.PodSpec
		switch object := decoded(t, one).(type) {
		case *appsv1.Deployment:
			pod = object.Spec.Template.Spec
		case *appsv1.DaemonSet:
			pod = object.Spec.Template.Spec
		default:
			continue
		}
		for _, container := range pod.Containers {
			for kind, probe := range map[string]*corev1.Probe{"/livez": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
				if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != kind {
					t.Errorf("%s is asked for %s by %+v", one.Name, kind, probe)
					continue
				}
				port := probe.HTTPGet.Port
				named := slices.ContainsFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == port.StrVal })
				served := slices.ContainsFunc(container.Args, func(arg string) bool { return strings.HasSuffix(arg, "=:"+port.String()) })
				if !named && !served {
					t.Errorf("%s is asked for %s at port %s, which it does not have", one.Name, kind, port.String())
				}
			}
			if live := container.LivenessProbe; live != nil && live.PeriodSeconds*live.FailureThreshold < 60 {
				t.Errorf("%s is started anew after %d s", one.Name, live.PeriodSeconds*live.FailureThreshold)
			}
		}
	}
}
