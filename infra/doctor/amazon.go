package doctor

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// amazonActions returns one action of each service that the stack uses.
func amazonActions(s *settings.Settings) []string {
	e := s.EKS
	all := []string{"eks:CreateCluster", "iam:CreateRole", "iam:PassRole", "logs:CreateLogGroup"}
	for _, service := range []struct {
		used    bool
		actions []string
	}{
		{e.VPC.ID == "", []string{"ec2:CreateVpc", "ec2:CreateNatGateway"}},
		{e.Nodes != settings.NodesAuto, []string{"eks:CreateNodegroup", "ec2:CreateLaunchTemplate"}},
		{e.Nodes == settings.NodesKarpenter,
			[]string{"sqs:CreateQueue", "events:PutRule", "iam:CreateInstanceProfile"}},
		{e.EFS != nil && e.EFS.ID == "", []string{"elasticfilesystem:CreateFileSystem"}},
		{e.Registry == "", []string{"ecr:CreateRepository"}},
		{e.CodeBucket || e.Bucket != nil && e.Bucket.Name == "", []string{"s3:CreateBucket"}},
		{e.KMSKey != "", []string{"kms:DescribeKey", "kms:CreateGrant"}},
		{s.Budget != nil, []string{"budgets:ModifyBudget"}},
	} {
		if service.used {
			all = append(all, service.actions...)
		}
	}
	return all
}

func (e *examination) amazon(s *settings.Settings) {
	questions := []string{"rights", "quotas"}
	if s.Budget != nil {
		questions = append(questions, "budget")
	}
	if !e.has("aws") {
		e.say(Missing, "aws", "https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
			"it is not on PATH")
		e.unasked("aws is missing", append([]string{"Amazon's login"}, questions...)...)
		return
	}
	ask := func(args ...string) (string, error) {
		if s.EKS.Region != "" {
			args = append(args, "--region", s.EKS.Region)
		}
		if s.EKS.Profile != "" {
			args = append(args, "--profile", s.EKS.Profile)
		}
		return e.Run("aws", args...)
	}
	text, err := ask("sts", "get-caller-identity", "--output", "json")
	var who struct{ Account, Arn string }
	if err == nil {
		err = json.Unmarshal([]byte(text), &who)
	}
	if err != nil {
		e.say(Missing, "Amazon's login", "aws configure, or aws sso login; aws:profile names another profile",
			"%v", err)
		e.unasked("there is no login", questions...)
		return
	}
	e.say(OK, "Amazon's login", "", "%s", who.Arn)
	if s.Budget != nil {
		e.amazonTag(ask)
	}
	e.amazonRights(ask, who.Arn, amazonActions(s))
	e.amazonQuotas(ask, s)
}

func (e *examination) amazonRights(ask func(...string) (string, error), arn string, actions []string) {
	// a session of a role is judged by its role
	if account, rest, ok := strings.Cut(arn, ":assumed-role/"); ok {
		role, _, _ := strings.Cut(rest, "/")
		arn = strings.Replace(account, ":sts:", ":iam:", 1) + ":role/" + role
	}
	text, err := ask(append([]string{"iam", "simulate-principal-policy", "--policy-source-arn", arn, "--output", "json",
		"--action-names"}, actions...)...)
	var answer struct {
		EvaluationResults []struct{ EvalActionName, EvalDecision string }
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &answer)
	}
	if err != nil {
		e.say(Unknown, "rights", "ask an administrator of the account to run this", "%v", err)
		return
	}
	var denied []string
	for _, r := range answer.EvaluationResults {
		if r.EvalDecision != "allowed" {
			denied = append(denied, r.EvalActionName)
		}
	}
	if len(denied) > 0 {
		e.say(Missing, "rights",
			"the user of `pulumi up` makes roles: give it AdministratorAccess, in an account of its own",
			"%s may not %s", arn, strings.Join(denied, ", "))
		return
	}
	e.say(OK, "rights", "", "those that were asked for: %s", strings.Join(actions, ", "))
}

func (e *examination) amazonQuotas(ask func(...string) (string, error), s *settings.Settings) {
	small, unasked := 0, 0
	for _, q := range s.EKS.Quotas() {
		if q.ID == "" {
			e.say(Note, "quota", "", "%s", s.EKS.QuotaNote(q))
			continue
		}
		text, err := ask("service-quotas", "get-service-quota", "--service-code", "ec2", "--quota-code", q.ID,
			"--query", "Quota.Value", "--output", "text")
		has, wrong := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || wrong != nil {
			unasked++
			e.say(Unknown, "quota "+q.ID, "", "%s: %v", q.Name, cmp.Or(err, wrong))
			continue
		}
		if has < float64(q.Rolled) {
			small++
			state := Note
			if has < float64(q.First) {
				state = Missing
			}
			e.say(state, "quota "+q.ID, "aws service-quotas request-service-quota-increase --service-code ec2 "+
				"--quota-code "+q.ID+" --region "+s.EKS.Region+" --desired-value "+strconv.Itoa(q.Rolled),
				"%q is %g vCPUs, and %s needs %d at first, %d with maxNodes, up to %d while nodes are rolled", q.Name,
				has, strings.Join(q.Pools, ", "), q.First, q.Most, q.Rolled)
		}
	}
	if small+unasked == 0 {
		e.say(OK, "quotas", "", "large enough for all groups at maxNodes")
	}
}
