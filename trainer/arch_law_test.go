package trainer

// kind is the purity of a package.
type kind string

const (
	// decides and computes: no I/O, clock, goroutine, lock or log
	pure  kind = "pure"
	model kind = "model" // what users write, and what that needs
	// how the roles speak: generated calls, and the certificates that prove who makes them
	wire  kind = "wire"
	shell kind = "shell" // does
)

// floors is the law of the folders: what the packages of each may import, besides those of their
// own folder and the small ones.
var floors = map[string]string{
	"elastic": "",
	"wire":    "elastic",
	"store":   "elastic wire",
	"master":  "elastic wire store",
	"train":   "elastic wire store",
	"run":     "elastic wire store",
	"runtime": "elastic wire store master train run",
}

// small are packages outside the folders that every package may import.
const small = "console download logline"

// packages is the import law within the folders: what of the trainer each of its packages imports.
// A new import is a decision about the architecture, so it is made here; a new package too.
var packages = map[string]struct {
	kind    kind
	imports string
}{
	"elastic":            {pure, ""},
	"elastic/audit":      {pure, "elastic/book elastic/journal elastic/ledger elastic/task"},
	"elastic/book":       {pure, "elastic/ledger elastic/task"},
	"elastic/curve":      {pure, ""},
	"elastic/custody":    {pure, "elastic/ledger elastic/rendezvous"},
	"elastic/evaluation": {pure, ""},
	"elastic/identity":   {pure, "elastic/pod"},
	"elastic/job":        {pure, "elastic/secret elastic/source"},
	"elastic/admission":  {pure, ""},
	"elastic/journal":    {pure, "elastic/book elastic/goodput"},
	"elastic/goodput":    {pure, "elastic/verdict"},
	"elastic/launch":     {pure, ""},
	"elastic/leases":     {pure, "elastic/ledger"},
	"elastic/ledger":     {pure, ""},
	"elastic/lifecycle":  {pure, "elastic/job"},
	"elastic/param":      {pure, ""},
	"elastic/pod":        {pure, ""},
	"elastic/price":      {pure, ""},
	"elastic/rendezvous": {pure, ""},
	"elastic/secret":     {pure, ""},
	"elastic/source":     {pure, ""},
	"elastic/stacks":     {pure, ""},
	"elastic/stuck":      {pure, "elastic/stacks"},
	"elastic/supervise":  {pure, "elastic/job elastic/rendezvous elastic/timing elastic/verdict"},
	"elastic/task":       {pure, "elastic/ledger"},
	"elastic/timing":     {pure, ""},
	"elastic/verdict":    {pure, ""},

	"wire":            {wire, ""},
	"wire/credential": {wire, "elastic/identity"},
	"wire/membership": {shell, "elastic/job wire wire/rpc"},
	"wire/rpc":        {wire, "elastic/identity elastic/param elastic/pod elastic/timing wire wire/credential"},

	"store":                 {shell, ""},
	"store/bucket":          {shell, "store/checkpoint store/outage"},
	"store/checkpoint":      {shell, "elastic/ledger elastic/param elastic/task store/safetensors"},
	"store/checkpoint/laws": {shell, "elastic/ledger elastic/param store/checkpoint store/safetensors"},
	"store/outage":          {shell, "elastic/timing"},
	"store/prediction":      {shell, "store/checkpoint"},
	"store/safetensors":     {pure, "elastic/param"},
	"store/tensorboard":     {shell, "elastic/job elastic/pod store/checkpoint store/outage wire"},

	"master": {shell,
		"elastic/admission elastic/book elastic/curve elastic/custody elastic/evaluation elastic/goodput elastic/identity " +
			"elastic/job elastic/journal elastic/ledger elastic/lifecycle elastic/param elastic/pod " +
			"elastic/rendezvous elastic/stacks elastic/stuck elastic/task elastic/timing elastic/verdict logline " +
			"store/checkpoint store/prediction wire wire/rpc"},

	"train":               {shell, ""},
	"train/data":          {shell, "elastic/task store/outage train/recordio"},
	"train/data/dataset":  {shell, "download train/data train/data/example train/recordio"},
	"train/data/example":  {model, ""},
	"train/mesh":          {shell, "elastic/identity elastic/pod elastic/timing train/ring wire/credential"},
	"train/nn":            {pure, "elastic/param train/nn/kernel"},
	"train/nn/kernel":     {pure, "train/nn/kernel/avx"},
	"train/nn/kernel/avx": {pure, ""},
	"train/optim":         {pure, "train/nn/kernel"},
	"train/ps": {shell,
		"elastic/custody elastic/identity elastic/job elastic/ledger elastic/param elastic/pod elastic/timing " +
			"store/checkpoint store/outage train/nn/kernel train/optim train/zoo wire wire/credential wire/rpc"},
	"train/recordio": {pure, ""},
	"train/ring":     {pure, "train/nn/kernel"},
	"train/worker": {shell,
		"elastic/job elastic/ledger elastic/param elastic/rendezvous elastic/task elastic/timing " +
			"store/checkpoint store/outage store/prediction train/data train/mesh train/nn train/nn/kernel " +
			"train/optim train/ps train/ring train/zoo wire wire/membership wire/rpc"},
	"train/zoo": {model, "elastic/param train/data/example train/nn train/nn/kernel train/optim"},

	"run": {shell, ""},
	"run/agent": {shell,
		"elastic/job elastic/leases elastic/ledger elastic/source elastic/stacks elastic/supervise " +
			"elastic/timing run/fetch run/program run/python run/tcpstore store/checkpoint store/outage wire wire/membership wire/rpc"},
	"run/fetch":    {shell, "download elastic/source store/checkpoint"},
	"run/folder":   {shell, ""},
	"run/program":  {shell, "console logline"},
	"run/python":   {shell, ""},
	"run/tcpstore": {shell, ""},

	"runtime":        {shell, ""},
	"runtime/demand": {pure, "elastic/job elastic/pod runtime/manifest"},
	"runtime/image":  {shell, "run/folder"},
	"runtime/kube": {shell,
		"elastic/curve elastic/job elastic/journal elastic/pod elastic/price logline master " +
			"runtime/demand runtime/kube/clientset runtime/kube/observe runtime/manifest runtime/role " +
			"store/checkpoint wire wire/rpc"},
	"runtime/kube/incluster": {shell,
		"elastic/curve elastic/identity elastic/job elastic/journal elastic/launch elastic/pod master " +
			"runtime/kube/clientset runtime/kube/observe runtime/manifest runtime/role store/checkpoint " +
			"wire wire/credential wire/rpc"},
	"runtime/kube/clientset": {shell, ""},
	"runtime/kube/observe":   {shell, "elastic/pod runtime/manifest runtime/role"},
	"runtime/local": {shell,
		"console elastic/curve elastic/identity elastic/job elastic/journal elastic/launch elastic/pod " +
			"elastic/timing logline master run/program runtime/role store/checkpoint wire wire/credential wire/rpc"},
	"runtime/manifest": {pure, "elastic/job elastic/pod elastic/timing"},
	"runtime/metrics": {shell,
		"elastic/goodput elastic/job elastic/journal elastic/pod master run/program train/ps train/worker wire"},
	"runtime/notice": {shell, "elastic/job"},
	"runtime/role": {shell,
		"elastic/curve elastic/identity elastic/job elastic/journal elastic/pod elastic/task elastic/timing " +
			"logline master run/agent run/program runtime/metrics runtime/notice store/bucket store/checkpoint " +
			"store/outage store/prediction store/tensorboard train/data train/ps train/worker train/zoo wire wire/credential " +
			"wire/membership wire/rpc"},

	"console":  {shell, ""},
	"logline":  {shell, ""},
	"download": {shell, ""},
}

// confined lists imports that only some packages may have, with reasons.
var confined = []struct{ path, to, why string }{
	{"k8s.io/client-go", "trainer/runtime/kube infra/live",
		"one package of a job and one of a stack talk to Kubernetes, so that the rest needs no cluster"},
	{"k8s.io/", "trainer/runtime/kube trainer/runtime/manifest trainer/runtime/demand infra",
		"objects of Kubernetes are made in one place"},
	{"sigs.k8s.io/", "trainer/runtime/kube trainer/runtime/manifest infra",
		"objects of Kubernetes are written in one place"},
	{"github.com/google/go-containerregistry", "trainer/runtime/image", "images are made in one place"},
	{"github.com/pulumi/", "infra stacks examples/clusters", "nothing that runs in a pod links Pulumi"},
	{"os/exec", "trainer/runtime/local trainer/run/program trainer/runtime/image infra/image stacks",
		"only the runtime starts roles, users' programs are processes, and images need a compiler"},
	{"google.golang.org/grpc", "trainer/wire trainer/wire/rpc trainer/wire/membership " +
		"trainer/run/agent trainer/master trainer/train/ps trainer/train/worker " +
		"trainer/runtime/role trainer/runtime/local trainer/runtime/kube", "the wire ends at the shells"},
	{"github.com/spf13/", "cmd", "flags are the command's; the trainer knows job.Job"},
	{"github.com/prometheus/", "trainer/runtime/metrics", "one package has all metrics and their names"},
	{"gocloud.dev", "trainer/store/bucket", "the clouds' SDKs are large: who opens a place by its name links them"},
	{"github.com/aws/", "trainer/store/bucket trainer/runtime/notice",
		"the clouds' SDKs are large: who opens a place by its name, or asks a cloud, links them"},
	{"cloud.google.com/", "trainer/store/bucket trainer/runtime/notice",
		"the clouds' SDKs are large: who opens a place by its name, or asks a cloud, links them"},
	{module + "/trainer/store/bucket", "trainer/runtime/role cmd",
		"the rest takes checkpoint.Files, and is tested without the clouds' SDKs"},
	{module + "/trainer/train/nn/kernel/avx", "trainer/train/nn/kernel",
		"assembly checks no argument; package kernel does"},
	{module + "/trainer/store/checkpoint/laws", "", "it is for tests"},
	{"github.com/charmbracelet/", "cmd", "views are the command's"},
	{module + "/cmd", "cmd examples", "the command is on top"},
	{module + "/stacks", "", "the stacks are on top"},
	{module + "/infra", "infra stacks examples/clusters", "trainer and infra meet only in job.Job"},
}

// pureFiles are the pure parts of packages that are not.
var pureFiles = []string{"train/ps/rule.go", "store/checkpoint/claim.go", "store/tensorboard/event.go",
	"store/tensorboard/name.go", "store/tensorboard/sampler.go", "store/tensorboard/backlog.go"}

// settings is the pure package of the infrastructure.
const settings = "infra/settings"

// notPure lists imports that a pure package must not have.
var notPure = map[string]string{
	"context": "nothing in it waits", "sync": "the shell holds the lock", "sync/atomic": "the shell holds the lock",
	"os": "no I/O", "net": "no I/O", "net/http": "no I/O", "syscall": "no I/O", "io/fs": "no I/O",
	"runtime": "no scheduling",
	"log":     "shells log", "log/slog": "shells log",
	"math/rand": "math/rand/v2 with a seed", "crypto/rand": "math/rand/v2 with a seed",
	"testing": "tests are elsewhere",
}

// excused lists exceptions of pure packages, with reasons.
var excused = map[string]string{
	"train/nn runtime": "its team of threads", "train/nn sync/atomic": "its team of threads",
	"train/nn go":                             "its team of threads",
	"train/nn time.Now":                       "its team of threads",
	"train/nn/kernel os":                      "ELASTICDL_KERNELS, for tests",
	"train/nn/kernel golang.org/x/sys/cpu":    "which assembly there is for the processor",
	"train/recordio github.com/golang/snappy": "a compression of the format",
	"store/tensorboard/event.go google.golang.org/protobuf/encoding/protowire": "the encoding of the format",
}
