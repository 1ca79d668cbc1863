package platform

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/flags"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// aJob returns a job with all that is required, changed by flags.
func aJob(t *testing.T, more ...string) *job.Job {
	t.Helper()
	c, err := flags.Job(job.Train, append(strings.Fields("--job_name=j --image_name=i --model_def=m.f "+
		"--training_data=/data/train --namespace=research"), more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c.Job
}

func TestCheck(t *testing.T) {
	few := aJob(t)
	few.PS.Request, few.Worker.Request = job.Resources{"cpu": "1"}, job.Resources{"cpu": "1"}
	for name, test := range map[string]struct {
		change func(*settings.Settings)
		want   string
	}{
		"good":   {func(s *settings.Settings) {}, ""},
		"no job": {func(s *settings.Settings) { s.Job, s.Platform.PodSecurity = nil, restricted }, ""},
		"restricted": {func(s *settings.Settings) {
			s.Platform.PodSecurity = restricted
		}, "elasticdl:platform.podSecurity: restricted: the job's pods would be refused: runAsNonRoot != " +
			`true (pod or container "launcher" must set securityContext.runAsNonRoot=true); runAsNonRoot != ` +
			`true (pod or container "master" must set securityContext.runAsNonRoot=true); runAsNonRoot != ` +
			`true (pod or container "ps" must set securityContext.runAsNonRoot=true); runAsNonRoot != ` +
			`true (pod or container "worker" must set securityContext.runAsNonRoot=true)`},
		"host path": {func(s *settings.Settings) {
			s.Job, s.Platform.PodSecurity = aJob(t, "--volume=host_path=/data,mount_path=/data"), baseline
		},
			"elasticdl:platform.podSecurity: baseline: the job's pods would be refused: hostPath volumes (volume \"volume-0\")"},
		"as it allows": {func(s *settings.Settings) {
			s.Job = aJob(t, "--volume=host_path=/data,mount_path=/data")
		}, ""},
		"quota": {func(s *settings.Settings) {
			s.Job, s.Platform.Quota = few, map[string]string{"pods": "9", "limits.cpu": "9",
				"memory": "9Gi", "limits.memory": "9Gi"}
		}, "elasticdl:platform.quota[\"limits.memory\"]: the job's pods would be refused: they do " +
			"not say how much they want of that: worker, ps\nelasticdl:platform.quota.memory: the job's pods"},
		"a namespace that is too small": {func(s *settings.Settings) {
			s.Job = aJob(t, "--num_workers=9", "--min_workers=2", "--worker_resource_request=cpu=2,memory=1Gi")
			s.Platform.Quota = map[string]string{"cpu": "3", "pods": "2", "memory": "1Ti", "secrets": "0"}
		}, "elasticdl:platform.quota.cpu: 3: the job needs 5100m before it trains (1 master: 100m, 2 workers: 4, " +
			"1 parameter server: 1), so that it never has all its pods: expected a greater quota, fewer " +
			"job.minWorkers or smaller requests\nelasticdl:platform.quota.pods: 2: the job needs 5 before it trains"},
		"a namespace for some workers": {func(s *settings.Settings) {
			s.Job = aJob(t, "--num_workers=9", "--worker_resource_request=cpu=2,memory=1Gi")
			s.Platform.Quota = map[string]string{"requests.cpu": "4", "pods": "4", "limits.cpu": "9"}
		}, ""},
		"built image": {func(s *settings.Settings) {
			s.Job.Image, s.Platform.PodSecurity = "", restricted
		}, "elasticdl:platform.podSecurity: restricted: the job's pods would be refused: runAsNonRoot != true (pod"},
		"storage class": {func(s *settings.Settings) {
			s.EKS.EFS, s.Platform.StorageClass = nil, "c"
		}, "elasticdl:platform.storageClass: c: expected eks.efs"},
	} {
		s := configured(settings.CloudEKS)
		s.Job = aJob(t)
		test.change(s)
		err := s.Verify(Check)
		if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: got:\n%v\nwant:\n%s", name, err, test.want)
		}
	}
}

// K13: for every job the namespace accepts its pods, or the job is refused before any resource is
// requested. That against agrees with the API server is tested in TestAgainst, and in the
// end-to-end tests.
func TestNamespaceTakesPods(t *testing.T) {
	hook := func(text string) string { return "--cluster_spec_json=" + text }
	nonRoot := hook(`{"pod_spec":{"securityContext":{"runAsNonRoot":true,"runAsUser":65532}}}`)
	for _, test := range []struct {
		flags []string
		// the level that is set, and the level of the namespace; "" = refused
		set, level string
	}{
		{nil, "", baseline},
		{[]string{"--num_ps_pods=0", "--distribution_strategy=AllreduceStrategy",
			"--worker_resource_request=cpu=1,memory=1Gi,gpu=1"}, "", baseline},
		{[]string{"--volume=claim_name=data-claim,mount_path=/data"}, "", baseline},
		{[]string{"--volume=host_path=/data,mount_path=/data"}, "", privileged},
		{[]string{"--volume=host_path=/data,mount_path=/data"}, privileged, privileged},
		{[]string{"--volume=host_path=/data,mount_path=/data"}, baseline, ""},
		{nil, restricted, ""},
		{[]string{nonRoot}, restricted, restricted},
		{[]string{nonRoot}, "", baseline},
		{[]string{nonRoot, "--volume=host_path=/data,mount_path=/data"}, restricted, ""},
		{[]string{hook(`{"worker_pod_spec":{"hostNetwork":true}}`)}, "", privileged},
		{[]string{hook(`{"ps_pod_spec":{"hostIPC":true}}`)}, baseline, ""},
		{[]string{
			hook(
				`{"worker_pod_spec":{"containers":[{"name":"worker","securityContext":{"capabilities":{"add":["SYS_PTRACE"]}}}]}}`)},
			"", privileged},
		{[]string{
			hook(
				`{"worker_pod_spec":{"containers":[{"name":"worker","securityContext":{"capabilities":{"add":["NET_BIND_SERVICE"]}}}]}}`)},
			"", baseline},
		{[]string{
			hook(`{"worker_pod_spec":{"volumes":[{"name":"shm","emptyDir":{"medium":"Memory"}}]}}`)}, "", baseline},
	} {
		s := &settings.Settings{Project: "elasticdl", Cloud: settings.CloudGKE,
			Job: aJob(t, test.flags...), Platform: settings.Platform{Namespace: "research", PodSecurity: test.set}}
		if err := s.Verify(Check); (err == nil) != (test.level != "") {
			t.Errorf("%q with %q: %v", test.flags, test.set, err)
		} else if err != nil {
			continue
		}
		n := namespace("research", podSecurity(s.Platform, []*job.Job{s.Job}))
		level := n.Labels["pod-security.kubernetes.io/enforce"]
		if level != test.level {
			t.Errorf("%q with %q: namespace enforces %s, want %s", test.flags, test.set, level, test.level)
		}
		templates := rolesOf(s.Job)
		if want := 3 + min(s.Job.NumPS, 1); len(templates) != want {
			t.Errorf("%q has pods of %d kinds, want %d", test.flags, len(templates), want)
		}
		for _, p := range templates {
			if bad := against(level, p.Pod); len(bad) > 0 {
				t.Errorf("%q: %s has against %s: %q", test.flags, level, p.Name, bad)
			}
		}
		for _, mode := range []string{"warn", "enforce", "audit"} {
			if v := n.Labels["pod-security.kubernetes.io/"+mode+"-version"]; v != podSecurityVersion ||
				n.Labels["pod-security.kubernetes.io/"+mode] == "" {
				t.Errorf("%s has version %q", mode, v)
			}
		}
	}
}

// K11: Kubernetes lets nobody grant more rights than they have, so a submitter may do all that a
// master may, and otherwise only what the command line needs.
func TestSubmitter(t *testing.T) {
	submitter := roles("research")[0]
	var masters []rbac.PolicyRule
	s, err := manifest.Submit(aJob(t))
	if err != nil {
		t.Fatal(err)
	}
	_, shared, _ := manifest.Permissions("research", "trainer")
	masters = append(append(masters, s.Role.Rules...), shared.Rules...)
	for _, m := range masters {
		for _, resource := range m.Resources {
			for _, verb := range m.Verbs {
				if !allows(submitter, m.APIGroups[0], resource, verb) {
					t.Errorf("a submitter may not %s %s, and so not make a master that may", verb, resource)
				}
			}
		}
	}
	for _, o := range s.Objects() {
		gvk := o.GetObjectKind().GroupVersionKind()
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		for _, verb := range []string{"create", "delete"} {
			if !allows(submitter, gvk.Group, plural.Resource, verb) {
				t.Errorf("a submitter may not %s %s, of which a job has one", verb, plural.Resource)
			}
		}
	}
	for _, r := range roles("research") {
		for _, rule := range r.Rules {
			for _, text := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
				if slices.Contains([]string{"*", "bind", "escalate", "impersonate", "pods/attach",
					"pods/portforward"}, text) {
					t.Errorf("%s: %+v", r.Name, rule)
				}
			}
			if slices.Contains(rule.Resources, "secrets") &&
				!slices.Equal(rule.Verbs, []string{"create", "delete", "get", "update"}) {
				t.Errorf("%s: %+v: of Secrets a job needs the one that is named by it, and never a list", r.Name, rule)
			}
		}
	}
	if allows(submitter, "", "pods/exec", "create") {
		t.Error("a submitter may run commands in pods")
	}
}

func allows(r *rbac.Role, group, resource, verb string) bool {
	return slices.ContainsFunc(r.Rules, func(p rbac.PolicyRule) bool {
		return slices.Contains(p.APIGroups, group) && slices.Contains(p.Resources, resource) &&
			slices.Contains(p.Verbs, verb)
	})
}

// K12: the device plugin.
func TestDevicePlugin(t *testing.T) {
	d := devicePlugin("", map[string]string{"nvidia.com/gpu.present": "true"})
	p := d.Spec.Template.Spec
	c := p.Containers[0]
	if _, digest, ok := strings.Cut(c.Image, "@sha256:"); !ok || len(digest) != 64 || !strings.Contains(c.Image, ":v") {
		t.Errorf("image %s has no version and digest", c.Image)
	}
	if d.Namespace != "kube-system" || p.NodeSelector["nvidia.com/gpu.present"] != "true" ||
		p.PriorityClassName != "system-node-critical" {
		t.Errorf("%+v", d)
	}
	// pools of GPUs may have taints of the user's
	if len(p.Tolerations) != 1 || p.Tolerations[0] != (core.Toleration{Operator: core.TolerationOpExists}) {
		t.Errorf("%+v", p.Tolerations)
	}
	if s := c.SecurityContext; s.Privileged != nil || *s.AllowPrivilegeEscalation ||
		!slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
		t.Errorf("%+v", s)
	}
	if got := devicePlugin("registry.example/plugin@sha256:1",
		nil).Spec.Template.Spec.Containers[0].Image; got != "registry.example/plugin@sha256:1" {
		t.Errorf("image %s", got)
	}
}

// K14: the connections that a job needs are allowed.
func TestNetworkPolicy(t *testing.T) {
	for cloud, metadata := range map[string][]string{
		settings.CloudGKE:      {"169.254.169.254/32 80", "169.254.169.252/32 988"},
		settings.CloudEKS:      {"169.254.170.23/32 80", "fd00:ec2::23/128 80"},
		settings.CloudMinikube: nil,
	} {
		n := networkPolicy("research", cloud)
		var got []string
		for _, rule := range n.Spec.Egress {
			to := "any"
			for _, peer := range rule.To {
				if to = "own"; peer.IPBlock != nil {
					to = peer.IPBlock.CIDR
				}
			}
			if len(rule.Ports) == 0 {
				got = append(got, to)
			}
			for _, port := range rule.Ports {
				text := to + " " + port.Port.String()
				if *port.Protocol == core.ProtocolUDP {
					text += " UDP"
				}
				got = append(got, text)
			}
		}
		want := append(strings.Split("own,any 53 UDP,any 53,any 443,any 6443,any 8443", ","), metadata...)
		if !slices.Equal(got, want) {
			t.Errorf("%s: goes out to %q, want %q", cloud, got, want)
		}
		// policies add up: a job's policy could not block what this one allowed
		if in := n.Spec.Ingress; len(in) != 0 || len(n.Spec.PolicyTypes) != 2 {
			t.Errorf("%s: comes in from %+v", cloud, in)
		}
	}
}

// Jobs that fit a quota one by one, and not together, wait for each other: that is noted.
func TestTogether(t *testing.T) {
	jobs := []*job.Job{aJob(t, "--job_name=digits"), aJob(t, "--job_name=fashion"), aJob(t, "--job_name=letters")}
	need := func(n int) string {
		of := rolesOf(jobs[0])
		total := 0
		for _, r := range of {
			total += r.Least
		}
		return strconv.Itoa(n * total)
	}
	note := `platform.quota.pods: ` + need(2) + `, and the jobs digits, fashion, letters need ` + need(3) +
		` together before they train: some wait until others have ended`
	for _, test := range []struct {
		quota, want string
		jobs        []*job.Job
	}{
		{need(2), note, jobs},
		{need(3), "", jobs},
		{need(1), "", jobs[:1]},
		{need(0), "", jobs[:1]}, // refused by another check
	} {
		got := together(settings.Platform{Quota: map[string]string{"pods": test.quota}}, test.jobs)
		if strings.Join(got, "\n") != test.want {
			t.Errorf("%s pods for %d jobs: %q", test.quota, len(test.jobs), got)
		}
	}
}
