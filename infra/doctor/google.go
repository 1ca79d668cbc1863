package doctor

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// services has the APIs that must be on before the first `pulumi up`, which turns on the others.
var services = []string{"serviceusage.googleapis.com", "cloudresourcemanager.googleapis.com"}

// googleRoles returns the roles with which a user may bring the stack up; an owner needs none.
func googleRoles(s *settings.Settings) []string {
	all := []string{"roles/compute.networkAdmin", "roles/container.admin", "roles/artifactregistry.admin",
		"roles/iam.serviceAccountAdmin", "roles/iam.serviceAccountUser", "roles/resourcemanager.projectIamAdmin",
		"roles/serviceusage.serviceUsageAdmin"}
	if s.GKE.Filestore != nil {
		all = append(all, "roles/file.editor")
	}
	if s.GKE.Bucket != nil {
		all = append(all, "roles/storage.admin")
	}
	if s.Budget != nil {
		all = append(all, "roles/monitoring.notificationChannelEditor")
	}
	return all
}

func (e *examination) google(s *settings.Settings) {
	for _, p := range []struct{ name, get string }{
		{"gcloud", "https://cloud.google.com/sdk/docs/install"},
		{"gke-gcloud-auth-plugin", "gcloud components install gke-gcloud-auth-plugin"},
	} {
		if !e.has(p.name) {
			e.say(Missing, p.name, p.get, "it is not on PATH")
		}
	}
	questions := []string{"project", "APIs", "roles", "quotas"}
	if s.Budget != nil {
		questions = append(questions, "billing account", "budget")
	}
	if !e.has("gcloud") {
		e.unasked("gcloud is missing", append([]string{"Google's login"}, questions...)...)
		return
	}
	user := e.googleLogin()
	project := s.GKE.Project
	switch {
	case user == "":
		e.unasked("gcloud has no account", questions...)
		return
	case project == "":
		e.unasked("gcp:project is missing", questions...)
		return
	}
	if _, err := e.Run("gcloud", "projects", "describe", project, "--format=value(projectId)"); err != nil {
		e.say(Missing, "project", "pulumi config set gcp:project PROJECT, or ask its owner for roles/viewer",
			"%s: %v", project, err)
	} else {
		e.say(OK, "project", "", "%s", project)
	}
	e.googleServices(project)
	e.googleRoles(s, user)
	if s.Budget != nil {
		e.googleBilling(s, user)
	}
	e.googleQuotas(s)
}

// googleLogin returns the account of gcloud; "" = there is none. Pulumi has credentials of its own.
func (e *examination) googleLogin() (user string) {
	const login = "gcloud auth login --update-adc"
	user, err := e.Run("gcloud", "config", "get-value", "account")
	if user = strings.TrimSpace(user); err != nil || user == "(unset)" {
		user = ""
	}
	if user == "" {
		e.say(Missing, "Google's login", login, "gcloud has no account")
	}
	if _, err := e.Run("gcloud", "auth", "application-default", "print-access-token"); err != nil {
		e.say(Missing, "Google's login", login, "Pulumi finds no credentials: %v", err)
	} else if user != "" {
		e.say(OK, "Google's login", "", "%s", user)
	}
	return user
}

func (e *examination) googleServices(project string) {
	on, err := e.Run("gcloud", "services", "list", "--enabled", "--project="+project, "--format=value(config.name)")
	if err != nil {
		e.say(Unknown, "APIs", "", "%v", err)
		return
	}
	var off []string
	for _, service := range services {
		if !slices.Contains(strings.Fields(on), service) {
			off = append(off, service)
		}
	}
	if len(off) > 0 {
		e.say(Missing, "APIs", "gcloud services enable "+strings.Join(off, " ")+" --project="+project,
			"off: %s", strings.Join(off, ", "))
		return
	}
	e.say(OK, "APIs", "", "the first ones are on; `pulumi up` turns on the others")
}

func (e *examination) googleRoles(s *settings.Settings, user string) {
	project := s.GKE.Project
	text, err := e.Run("gcloud", "projects", "get-iam-policy", project, "--flatten=bindings[].members",
		"--filter=bindings.members:"+user, "--format=value(bindings.role)")
	if err != nil {
		e.say(Unknown, "roles", "ask an owner of the project to run this", "%v", err)
		return
	}
	has := strings.Fields(text)
	if slices.Contains(has, "roles/owner") {
		e.say(OK, "roles", "", "roles/owner")
		return
	}
	var missing []string
	for _, role := range googleRoles(s) {
		if !slices.Contains(has, role) {
			missing = append(missing, role)
		}
	}
	if len(missing) > 0 {
		// groups, folders and roles of one's own may have the same permissions
		e.say(Note, "roles", "gcloud projects add-iam-policy-binding "+project+" --condition=None --member=user:"+user+
			" --role=ROLE", "not given to %s itself, perhaps by a group: %s", user, strings.Join(missing, ", "))
		return
	}
	e.say(OK, "roles", "", "all that are needed")
}

// googleQuota is a quota as gcloud prints it.
type googleQuota struct {
	Metric       string
	Limit, Usage float64
}

func (e *examination) googleQuotas(s *settings.Settings) {
	region, _ := settings.Region(s.GKE.Location)
	read := func(args ...string) ([]googleQuota, error) {
		text, err := e.Run("gcloud", append(args, "--project="+s.GKE.Project, "--format=json(quotas)")...)
		var answer struct{ Quotas []googleQuota }
		if err == nil {
			err = json.Unmarshal([]byte(text), &answer)
		}
		return answer.Quotas, err
	}
	inRegion, err := read("compute", "regions", "describe", region)
	if err != nil {
		e.say(Unknown, "quotas", "", "of %s: %v", region, err)
		return
	}
	inProject, err := read("compute", "project-info", "describe")
	if err != nil {
		e.say(Unknown, "quotas", "", "of the project: %v", err)
		return
	}
	small, unasked := 0, 0
	for _, need := range s.GKE.Quotas() {
		all, at := inRegion, region
		if need.Project {
			all, at = inProject, "the project"
		}
		i := slices.IndexFunc(all, func(q googleQuota) bool { return q.Metric == need.ID })
		if i < 0 {
			unasked++
			e.say(Unknown, "quota "+need.ID, "look in the console: IAM & Admin, Quotas",
				"%d of it are needed with all pools at maxNodes", need.Most)
			continue
		}
		if q := all[i]; q.Limit-q.Usage < float64(need.Most) {
			small++
			e.say(Note, "quota "+need.ID, "ask for more in the console: IAM & Admin, Quotas; or fewer maxNodes",
				"%s has %g, of which %g are used, and the stack needs %d with all pools at maxNodes", at, q.Limit,
				q.Usage, need.Most)
		}
	}
	if small+unasked == 0 {
		e.say(OK, "quotas", "", "large enough for all pools at maxNodes")
	}
}
