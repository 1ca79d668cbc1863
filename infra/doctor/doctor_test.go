package doctor

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// machine simulates a machine on which programs answer by the beginning of their command line; an
// answer that begins with "error: " fails.
func machine(answers map[string]string, programs ...string) Machine {
	return Machine{
		MemoryGB: 8,
		Env:      func(string) string { return "set" },
		Find: func(program string) (string, error) {
			if !slices.Contains(programs, program) {
				return "", errors.New("not found")
			}
			return "/bin/" + program, nil
		},
		Run: func(program string, args ...string) (string, error) {
			line := program + " " + strings.Join(args, " ")
			best := ""
			for begin := range answers {
				if strings.HasPrefix(line, begin) && len(begin) > len(best) {
					best = begin
				}
			}
			if best == "" {
				return "", fmt.Errorf("no answer to %s", line)
			}
			if text, fails := strings.CutPrefix(answers[best], "error: "); fails {
				return "", errors.New(text)
			}
			return answers[best], nil
		},
	}
}

// with returns answers with some replaced; "" removes one.
func with(all map[string]string, more ...string) map[string]string {
	changed := map[string]string{}
	maps.Copy(changed, all)
	for i := 0; i < len(more); i += 2 {
		if changed[more[i]] = more[i+1]; more[i+1] == "" {
			delete(changed, more[i])
		}
	}
	return changed
}

var (
	pulumi = map[string]string{"pulumi version": "v3.230.0\n", "pulumi whoami": "me\n",
		"pulumi stack ls": `[{"name":"gke"},{"name":"organization/elasticdl/eks"},{"name":"existing"}]`}
	google = with(pulumi,
		"gcloud config get-value account", "me@example.com\n",
		"gcloud auth application-default print-access-token", "token",
		"gcloud projects describe my-project", "my-project\n",
		"gcloud services list", "serviceusage.googleapis.com\ncloudresourcemanager.googleapis.com\n",
		"gcloud projects get-iam-policy", "roles/owner\n",
		"gcloud compute regions describe us-central1", `{"quotas":[{"metric":"CPUS","limit":72,"usage":8},
			{"metric":"SSD_TOTAL_GB","limit":500,"usage":0}]}`,
		"gcloud compute project-info describe", `{"quotas":[{"metric":"CPUS_ALL_REGIONS","limit":32,"usage":0}]}`)
	amazon = with(pulumi,
		"aws sts get-caller-identity",
		`{"Account":"123456789012","Arn":"arn:aws:sts::123456789012:assumed-role/admin/me"}`,
		"aws iam simulate-principal-policy --policy-source-arn arn:aws:iam::123456789012:role/admin --output json",
		`{"EvaluationResults":[{"EvalActionName":"eks:CreateCluster","EvalDecision":"allowed"}]}`,
		"aws service-quotas get-service-quota", "64.0\n")
	cluster = with(pulumi, "kubectl config current-context", "prod\n", "kubectl version", "{}",
		"kubectl auth can-i create", "yes\n", "kubectl get storageclass", "nfs (default)\n")
)

var (
	tools    = []string{"go", "kubectl", "pulumi", "elasticdl"}
	ofGoogle = append([]string{"gcloud", "gke-gcloud-auth-plugin"}, tools...)
	ofAmazon = append([]string{"aws"}, tools...)
	inGoogle = &settings.Settings{GKE: &settings.GKE{Project: "my-project", Location: "us-central1-c",
		PrivateNodes: true,
		SystemPool:   settings.GKEPool{MachineType: "e2-standard-4", MaxNodes: 2, DiskGB: 50},
		WorkerPool:   &settings.GKEPool{MachineType: "n1-standard-8", MaxNodes: 3, DiskGB: 50}}}
	inAmazon = &settings.Settings{EKS: &settings.EKS{Region: "us-west-2", VPC: settings.VPC{Zones: []string{"a", "b"}},
		SystemGroup: settings.EKSGroup{InstanceTypes: []string{"m6i.large"}, DesiredNodes: 2, MaxNodes: 2}}}
	inCluster = &settings.Settings{Existing: &settings.Existing{Volume: &settings.Claim{Name: "data-claim",
		CapacityGB: 10, AccessMode: "ReadWriteMany"}}, Platform: settings.Platform{Namespace: "elasticdl"}}
	inQueue = &settings.Settings{Existing: inCluster.Existing, Platform: settings.Platform{Namespace: "elasticdl",
		Queue: &settings.Queue{ClusterQueue: "team-a"}}}
)

// A machine that has all is ready; of another one everything that is missing is reported, with a
// cure, and what could not be asked is not ok.
func TestExamine(t *testing.T) {
	for name, test := range map[string]struct {
		m     Machine
		stack string
		s     *settings.Settings
		wrong error
		// findings that are not ok: their states, names, and parts of their texts
		want []string
	}{
		"google": {machine(google, ofGoogle...), "gke", inGoogle, nil, nil},
		"amazon": {machine(amazon, ofAmazon...), "eks", inAmazon, nil, nil},
		"cluster": {machine(cluster, tools...), "existing", inCluster, nil,
			[]string{"note storage class: the default one"}},
		"empty": {machine(nil), "gke", inGoogle, nil, []string{"MISSING elasticdl", "MISSING go", "MISSING kubectl",
			"MISSING pulumi", "unknown state", "unknown stack", "MISSING gcloud",
			"MISSING gke-gcloud-auth-plugin", "unknown Google's login",
			"unknown project", "unknown APIs", "unknown roles", "unknown quotas"}},
		"old": {machine(with(google, "pulumi version", "v3.99.1"), ofGoogle...), "gke", inGoogle, nil,
			[]string{"MISSING pulumi: 3.99.1 is installed"}},
		"logged out": {machine(with(google, "pulumi whoami", "error: PULUMI_ACCESS_TOKEN must be set"), ofGoogle...),
			"gke",
			inGoogle, nil, []string{"MISSING state: no login: PULUMI_ACCESS_TOKEN must be set",
				"unknown stack: not asked: there is no login of Pulumi"}},
		"no stack": {machine(google, ofGoogle...), "other", inGoogle, nil,
			[]string{"MISSING stack: there is no stack other"}},
		"wrong settings": {machine(google, ofGoogle...), "gke", inGoogle, errors.New("a: 1\nb: 2"),
			[]string{"MISSING setting: a: 1", "MISSING setting: b: 2"}},
		"no account": {machine(with(google, "gcloud config get-value account", "(unset)"), ofGoogle...), "gke",
			inGoogle, nil,
			[]string{"MISSING Google's login: gcloud has no account",
				"unknown project: not asked: gcloud has no account",
				"unknown APIs", "unknown roles", "unknown quotas"}},
		"neither account nor credentials": {machine(with(google, "gcloud config get-value account", "(unset)",
			"gcloud auth application-default print-access-token", "error: none"), ofGoogle...), "gke", inGoogle, nil,
			[]string{"MISSING Google's login: gcloud has no account", "MISSING Google's login: Pulumi finds no " +
				"credentials: none", "unknown project", "unknown APIs", "unknown roles", "unknown quotas"}},
		"no credentials": {machine(with(google, "gcloud auth application-default print-access-token", "error: none"),
			ofGoogle...), "gke", inGoogle, nil, []string{"MISSING Google's login: Pulumi finds no credentials: none"}},
		"no project": {machine(with(google, "gcloud projects describe my-project", "error: 403",
			"gcloud services list", "error: 403"), ofGoogle...), "gke",
			inGoogle, nil, []string{"MISSING project: my-project: 403", "unknown APIs: 403"}},
		"APIs": {machine(with(google, "gcloud services list", "serviceusage.googleapis.com"), ofGoogle...), "gke",
			inGoogle,
			nil, []string{"MISSING APIs: off: cloudresourcemanager.googleapis.com"}},
		"roles": {machine(with(google, "gcloud projects get-iam-policy", "roles/container.admin\nroles/viewer"),
			ofGoogle...),
			"gke", inGoogle, nil,
			[]string{"note roles: not given to me@example.com itself, perhaps by a group: roles/compute"}},
		"quotas": {machine(with(google, "gcloud compute regions describe us-central1",
			`{"quotas":[{"metric":"CPUS","limit":24,"usage":8}]}`), ofGoogle...), "gke", inGoogle, nil,
			[]string{"note quota CPUS: us-central1 has 24, of which 8 are used, and the stack needs 32",
				"unknown quota SSD_TOTAL_GB: 250"}},
		"used quotas": {machine(with(google, "gcloud compute project-info describe",
			`{"quotas":[{"metric":"CPUS_ALL_REGIONS","limit":40,"usage":9}]}`), ofGoogle...), "gke", inGoogle, nil,
			[]string{"note quota CPUS_ALL_REGIONS: the project has 40, of which 9 are used"}},
		"no answer of quotas": {machine(with(google, "gcloud compute regions describe us-central1", "error: 503"),
			ofGoogle...), "gke", inGoogle, nil, []string{"unknown quotas: of us-central1: 503"}},
		"amazon's login": {machine(with(amazon, "aws sts get-caller-identity", "error: expired"), ofAmazon...), "eks",
			inAmazon, nil, []string{"MISSING Amazon's login: expired", "unknown rights: not asked: there is no login",
				"unknown quotas"}},
		"amazon's rights": {machine(with(amazon, "aws iam simulate-principal-policy --policy-source-arn "+
			"arn:aws:iam::123456789012:role/admin --output json",
			`{"EvaluationResults":[{"EvalActionName":"iam:CreateRole","EvalDecision":"implicitDeny"}]}`),
			ofAmazon...), "eks",
			inAmazon, nil, []string{"MISSING rights: arn:aws:iam::123456789012:role/admin may not iam:CreateRole"}},
		"amazon's quotas": {machine(with(amazon, "aws service-quotas get-service-quota", "3.0"), ofAmazon...), "eks",
			inAmazon, nil,
			[]string{`MISSING quota L-1216C47A: "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) ` +
				`instances" is 3`}},
		"amazon's first quotas": {machine(with(amazon, "aws service-quotas get-service-quota", "5.0"), ofAmazon...),
			"eks",
			inAmazon, nil, []string{`note quota L-1216C47A`}},
		"no context": {machine(with(cluster, "kubectl config current-context", "error: current-context is not set"),
			tools...), "existing", inCluster, nil, []string{"MISSING context: current-context is not set",
			"unknown cluster: not asked", "unknown rights", "unknown storage class"}},
		"no cluster": {machine(with(cluster, "kubectl version", "error: no route to host"), tools...), "existing",
			inCluster,
			nil, []string{"MISSING cluster: prod: no route to host",
				"unknown rights: not asked: the cluster does not answer", "unknown storage class"}},
		"no rights": {machine(with(cluster, "kubectl auth can-i create pods/exec", "no\n",
			"kubectl auth can-i create namespaces",
			"no\n"), tools...), "existing", inCluster, nil,
			[]string{"MISSING rights: you may not create pods/exec, namespaces", "note storage class"}},
		"no right to a queue": {machine(with(cluster, "kubectl auth can-i create localqueues", "no\n",
			"kubectl auth can-i create clusterqueues", "no\n"), tools...), "existing", inQueue, nil,
			[]string{"MISSING rights: you may not create localqueues.kueue.x-k8s.io", "note storage class"}},
		"rights that are not known": {machine(with(cluster, "kubectl auth can-i create secrets", "error: timeout"),
			tools...), "existing", inCluster, nil, []string{"unknown rights: to create secrets: timeout",
			"note storage class"}},
		"no class": {machine(with(cluster, "kubectl get storageclass", "nfs\n"), tools...), "existing", inCluster, nil,
			[]string{"MISSING storage class: the cluster has no default class"}},
	} {
		var got []string
		for _, f := range Examine(test.m, test.stack, test.s, test.wrong) {
			if f.State != OK {
				got = append(got, string(f.State)+" "+f.Name+": "+f.Text)
			}
			if f.State == Missing && f.Cure == "" && f.Name != "setting" {
				t.Errorf("%s: no cure of %s", name, f)
			}
		}
		same := len(got) == len(test.want)
		for i := 0; same && i < len(got); i++ {
			same = strings.HasPrefix(got[i], test.want[i])
		}
		if !same {
			t.Errorf("%s: found\n\t%s\nwant\n\t%s", name, strings.Join(got, "\n\t"), strings.Join(test.want, "\n\t"))
		}
	}
}

// A stack with a bucket needs a role more, and one without does not.
func TestRoleOfBucket(t *testing.T) {
	bucket := *inGoogle.GKE
	bucket.Bucket = &settings.GKEBucket{}
	for _, s := range []*settings.GKE{inGoogle.GKE, &bucket} {
		found := false
		m := machine(with(google, "gcloud projects get-iam-policy", "roles/viewer"), ofGoogle...)
		for _, f := range Examine(m, "gke", &settings.Settings{GKE: s}, nil) {
			found = found || f.Name == "roles" && strings.Contains(f.Text, "roles/storage.admin")
		}
		if found != (s.Bucket != nil) {
			t.Errorf("%+v: the role is missed: %t", s.Bucket, found)
		}
	}
}

// Rights are asked for only if the stack uses them.
func TestRightsThatAreUsed(t *testing.T) {
	few := &settings.EKS{Nodes: settings.NodesAuto, VPC: settings.VPC{ID: "vpc-1"}, Registry: "images",
		Bucket: &settings.Bucket{Name: "mine"}, EFS: &settings.EFS{ID: "fs-1"}}
	if got := amazonActions(&settings.Settings{EKS: few}); strings.Join(got, " ") !=
		"eks:CreateCluster iam:CreateRole iam:PassRole logs:CreateLogGroup" {
		t.Error(got)
	}
	all := &settings.EKS{Nodes: settings.NodesKarpenter, Bucket: &settings.Bucket{}, EFS: &settings.EFS{},
		KMSKey: "arn"}
	got := amazonActions(&settings.Settings{EKS: all, Budget: &settings.Budget{}})
	want := []string{"budgets:ModifyBudget", "ec2:CreateLaunchTemplate", "ec2:CreateNatGateway", "ec2:CreateVpc",
		"ecr:CreateRepository", "eks:CreateCluster", "eks:CreateNodegroup", "elasticfilesystem:CreateFileSystem",
		"events:PutRule", "iam:CreateInstanceProfile", "iam:CreateRole", "iam:PassRole", "kms:CreateGrant",
		"kms:DescribeKey", "logs:CreateLogGroup", "s3:CreateBucket", "sqs:CreateQueue"}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("asked for are %v, want %v", got, want)
	}
	if slices.Contains(googleRoles(inGoogle), "roles/file.editor") {
		t.Error("a role for Filestore is asked for, and the stack has none")
	}
}

// Each kind of object that a stack creates in a cluster takes a right that is asked for.
func TestRightsInCluster(t *testing.T) {
	of := *inCluster
	for name, test := range map[string]struct {
		platform settings.Platform
		none     []string
	}{
		"its own": {settings.Platform{Namespace: "ml", Queue: &settings.Queue{}}, nil},
		"shared": {settings.Platform{Namespace: "ml", ShareNamespace: true, SharePriorityClasses: []string{"a", "b"},
			Queue: &settings.Queue{ClusterQueue: "theirs"}}, []string{"namespaces",
			"priorityclasses.scheduling.k8s.io", "clusterqueues.kueue.x-k8s.io"}},
	} {
		of.Platform = test.platform
		asked := map[string]bool{}
		m := machine(cluster, tools...)
		m.Run = func(program string, args ...string) (string, error) {
			if program == "kubectl" && len(args) > 3 && args[0] == "auth" {
				asked[args[3]] = true
				return "yes", nil
			}
			return "ok", nil
		}
		Examine(m, "existing", &of, nil)
		for _, kind := range append([]string{"namespaces", "priorityclasses.scheduling.k8s.io",
			"clusterqueues.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io", "poddisruptionbudgets.policy"}, kinds...) {
			if want := !slices.Contains(test.none, kind); asked[kind] != want {
				t.Errorf("%s: asked for %s: %v, want %v", name, kind, asked[kind], want)
			}
		}
	}
}

// Too little free memory is reported; where the system does not tell, nothing is.
func TestMemory(t *testing.T) {
	for free, want := range map[float64]bool{0: false, needGB - 0.5: true, needGB: false} {
		m := machine(google, ofGoogle...)
		m.MemoryGB = free
		found := slices.ContainsFunc(Examine(m, "gke", inGoogle, nil), func(f Finding) bool {
			return f.Name == "memory" && f.State == Missing
		})
		if found != want {
			t.Errorf("%v GiB are too little: %v", free, found)
		}
	}
}

// Only an object that does not exist is missing: nobody knows of others.
func TestAbsent(t *testing.T) {
	if absent(errors.New("Error from server (NotFound): x")) != Missing || absent(errors.New("timeout")) != Unknown {
		t.Error("an object that was not looked up is missing")
	}
}

// A question that nobody answers is never ok: without any answers only programs and settings are.
func TestNoAnswers(t *testing.T) {
	for name, s := range map[string]*settings.Settings{"gke": inGoogle, "eks": inAmazon, "existing": inCluster} {
		m := machine(nil, append(ofAmazon, ofGoogle...)...)
		m.MemoryGB = 1
		for _, f := range Examine(m, name, s, nil) {
			if f.State == OK && f.Name != "settings" {
				t.Errorf("%s: %s", name, f)
			}
		}
	}
}

// The oldest version of Pulumi is that of the project.
func TestLeastPulumi(t *testing.T) {
	project, err := os.ReadFile("../../Pulumi.yaml")
	if want := `requiredPulumiVersion: ">=` + least + `"`; err != nil || !strings.Contains(string(project), want) {
		t.Errorf("Pulumi.yaml does not have %s: %v", want, err)
	}
}

// The marks of programs at the beginning of their errors are left out.
func TestCause(t *testing.T) {
	for stderr, want := range map[string]string{
		"": "",
		"WARNING: old\nERROR: (gcloud.auth.print-access-token) No credentials.\n": "No credentials.",
		"error: current-context is not set\n":                                     "current-context is not set",
		"\nAn error occurred (ExpiredToken): x\n":                                 "An error occurred (ExpiredToken): x",
		"errors: 3": "errors: 3",
	} {
		if got := Cause(stderr); got != want {
			t.Errorf("%q: %q, want %q", stderr, got, want)
		}
	}
}
