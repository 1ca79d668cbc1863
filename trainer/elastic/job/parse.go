package job

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Resources are quantities by Kubernetes' names: cpu, memory, ephemeral-storage, nvidia.com/gpu.
type Resources map[string]string

var (
	cpuQuantity  = regexp.MustCompile(`^([1-9][0-9]*m|[0-9]+(\.[0-9]{1,3})?)$`)
	byteQuantity = regexp.MustCompile(`^[1-9][0-9]*(E|P|T|G|M|k|K|Ei|Pi|Ti|Gi|Mi|Ki)?$`)
	wholeNumber  = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)
)

// ParseResources reads "cpu=250m,memory=32Mi,disk=64Mi,gpu=1". disk is
// ephemeral-storage, gpu is nvidia.com/gpu; any other device goes by its full
// name, as amd.com/gpu=1.
func ParseResources(s string) (Resources, error) {
	r := Resources{}
	err := eachPair(s, ",", func(key, value string) error {
		name, quantity, err := resource(key, value)
		if err != nil {
			return err
		}
		if _, ok := r[name]; ok {
			return fmt.Errorf("%s occurs twice", name)
		}
		r[name] = quantity
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// resource is one resource under its Kubernetes name, its quantity checked.
func resource(key, value string) (name, quantity string, err error) {
	want, form := "", wholeNumber
	switch name = key; {
	case key == "cpu":
		want, form = "a number of cores like 2, 0.5 or 250m", cpuQuantity
	case key == "memory" || key == "ephemeral-storage":
		want, form = "bytes like 512Mi or 4Gi", byteQuantity
	case key == "disk":
		name, want, form = "ephemeral-storage", "bytes like 512Mi or 4Gi", byteQuantity
	case key == "gpu":
		name, want = "nvidia.com/gpu", "a whole number"
	case strings.Contains(key, "/") && labelKey(key) && !strings.HasPrefix(key, "kubernetes.io/") &&
		!strings.Contains(key, ".kubernetes.io/"):
		want = "a whole number"
	default:
		return "", "", fmt.Errorf("unknown resource %q: expected cpu, memory, disk, "+
			"ephemeral-storage, gpu or a device like nvidia.com/gpu", key)
	}
	if !form.MatchString(value) || value == "0" && form == cpuQuantity {
		return "", "", fmt.Errorf("%s=%s: expected %s", key, value, want)
	}
	if before, ok := strings.CutSuffix(value, "K"); ok { // ElasticDL's; Kubernetes knows k
		value = before + "k"
	}
	return name, value, nil
}

func (r Resources) String() string {
	parts := make([]string, 0, len(r))
	for _, name := range slices.Sorted(maps.Keys(r)) {
		parts = append(parts, name+"="+r[name])
	}
	return strings.Join(parts, ",")
}

// Volume is mounted by every pod: a claim, or a directory of the host.
type Volume struct {
	ClaimName string `json:"claimName,omitzero"`
	HostPath  string `json:"hostPath,omitzero"`
	// of the host path: Directory, DirectoryOrCreate, ...
	Type      string `json:"type,omitzero"`
	MountPath string `json:"mountPath"`
	SubPath   string `json:"subPath,omitzero"`
}

// ParseVolumes reads
// "claim_name=c,mount_path=/data;host_path=/d,type=Directory,mount_path=/d,sub_path=x".
func ParseVolumes(s string) ([]Volume, error) {
	var volumes []Volume
	for text := range strings.SplitSeq(s, ";") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		v, err := parseVolume(text)
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", strings.TrimSpace(text), err)
		}
		if slices.ContainsFunc(volumes, func(o Volume) bool { return o.MountPath == v.MountPath }) {
			return nil, fmt.Errorf("mount_path %s occurs twice", v.MountPath)
		}
		volumes = append(volumes, v)
	}
	return volumes, nil
}

func parseVolume(text string) (v Volume, err error) {
	fields := map[string]*string{
		"claim_name": &v.ClaimName, "host_path": &v.HostPath, "type": &v.Type,
		"mount_path": &v.MountPath, "sub_path": &v.SubPath,
	}
	err = eachPair(text, ",", func(key, value string) error {
		field, ok := fields[key]
		switch {
		case !ok:
			return fmt.Errorf("unknown key %q: expected claim_name, host_path, type, mount_path or sub_path", key)
		case *field != "":
			return fmt.Errorf("%s occurs twice", key)
		case value == "":
			return fmt.Errorf("%s is empty", key)
		}
		*field = value
		return nil
	})
	if err == nil {
		err = v.check()
	}
	if err != nil {
		return Volume{}, err
	}
	return v, nil
}

func (v Volume) String() string {
	var parts []string
	for _, p := range [][2]string{{"claim_name", v.ClaimName}, {"host_path", v.HostPath},
		{"type", v.Type}, {"mount_path", v.MountPath}, {"sub_path", v.SubPath}} {
		if p[1] != "" {
			parts = append(parts, p[0]+"="+p[1])
		}
	}
	return strings.Join(parts, ",")
}

// Priority is the PriorityClass of a role's pods. With a share, only that
// share of them has the class and the others have class "low": a floor of
// workers that is not preempted.
type Priority struct {
	Class string  `json:"class"`
	Share float64 `json:"share,omitzero"` // in (0, 1); 0 = all
}

// ParsePriority reads the name of a PriorityClass, "0.5" (that share of
// the pods is "high", the others "low"), or the older "high=0.5".
func ParsePriority(s string) (Priority, error) {
	class, share, shared := strings.Cut(s, "=")
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		class, share, shared = "high", s, true
	}
	if s == "" {
		return Priority{}, nil
	}
	if _, err := strconv.ParseFloat(class, 64); err == nil || !dnsSubdomain(class) {
		return Priority{}, fmt.Errorf("expected the name of a PriorityClass, or a share like 0.5")
	}
	if !shared {
		return Priority{Class: class}, nil
	}
	f, err := strconv.ParseFloat(share, 64)
	switch {
	case err != nil || !(f >= 0 && f <= 1):
		return Priority{}, fmt.Errorf("expected a share between 0 and 1")
	case f == 0:
		return Priority{Class: "low"}, nil
	case f == 1:
		return Priority{Class: class}, nil
	}
	return Priority{class, f}, nil
}

// Of is the class of pod i of n: ceil(n*share) pods, from both ends inwards, have the better one.
// Of more than n, by which a job has grown, the others have not.
func (p Priority) Of(i, n int) string {
	if p.Share == 0 {
		return p.Class
	}
	if i >= n {
		return "low"
	}
	// the order in which pods are served: 0, n-1, 1, n-2, ...
	rank := 2 * i
	if i >= (n+1)/2 {
		rank = 2*(n-1-i) + 1
	}
	if float64(rank) < float64(n)*p.Share {
		return p.Class
	}
	return "low"
}

func (p Priority) String() string {
	if p.Share == 0 {
		return p.Class
	}
	return p.Class + "=" + strconv.FormatFloat(p.Share, 'g', -1, 64)
}

var nextEnv = regexp.MustCompile(`,\s*[A-Za-z_][A-Za-z0-9_]*=`)
var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ParseEnvs reads "K1=v1,K2=v2". A value may hold '=' and ','; a comma
// before something like NAME= starts the next variable.
func ParseEnvs(s string) (map[string]string, error) {
	envs := map[string]string{}
	for strings.TrimSpace(s) != "" {
		key, rest, ok := strings.Cut(s, "=")
		key = strings.TrimSpace(key)
		if !ok || !envName.MatchString(key) {
			return nil, fmt.Errorf("expected NAME=value at %q", strings.TrimSpace(s))
		}
		if _, ok := envs[key]; ok {
			return nil, fmt.Errorf("%s occurs twice", key)
		}
		at := nextEnv.FindStringIndex(rest)
		if at == nil {
			envs[key] = rest
			break
		}
		envs[key], s = rest[:at[0]], rest[at[0]+1:]
	}
	return envs, nil
}

// ParseParams reads "k1=v1; k2='a; b'": values may stand in quotes, and do not run as code.
func ParseParams(s string) (map[string]string, error) {
	params := map[string]string{}
	for _, text := range splitOutsideQuotes(s, ';') {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		key, value, ok := strings.Cut(text, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok || key == "" {
			return nil, fmt.Errorf("expected name=value at %q", text)
		}
		if _, ok := params[key]; ok {
			return nil, fmt.Errorf("%s occurs twice", key)
		}
		if n := len(value); n >= 2 && (value[0] == '\'' || value[0] == '"') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		params[key] = value
	}
	return params, nil
}

// splitOutsideQuotes cuts s at each sep that is not between quotes.
func splitOutsideQuotes(s string, sep byte) []string {
	var parts []string
	start, quote := 0, byte(0)
	for i := range len(s) {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == sep:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

// ParseBool reads a boolean as ElasticDL's client does, and refuses what that takes for false.
func ParseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "t", "yes", "y", "1", "on":
		return true, nil
	case "false", "f", "no", "n", "0", "off":
		return false, nil
	}
	return false, fmt.Errorf("expected true or false")
}

// ParseDuration reads "90s", "5m" or a plain number of seconds.
func ParseDuration(s string) (time.Duration, error) {
	text := s
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("expected a duration like 300, 90s or 5m")
	}
	return d, nil
}

// eachPair calls f for each key=value of s; spaces round both are dropped, empty parts are skipped.
func eachPair(s, sep string, f func(key, value string) error) error {
	for text := range strings.SplitSeq(s, sep) {
		if strings.TrimSpace(text) == "" {
			continue
		}
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("expected key=value at %q", strings.TrimSpace(text))
		}
		if err := f(strings.TrimSpace(key), strings.TrimSpace(value)); err != nil {
			return err
		}
	}
	return nil
}
