package job

import (
	"path"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/source"
)

// settleWorkdir has the directory of --workdir uploaded, which the caller does, if the job runs on
// a cluster.
func (c *Command) settleWorkdir(p *problems) {
	g := &c.Job.Program
	if c.Runtime != "kubernetes" || g.Workdir == "" {
		return
	}
	c.Upload, g.Workdir = g.Workdir, ""
	p.check(c.YAML == "", setting("workdir", c.Upload),
		"nothing is uploaded with %v; remove one of the two, or have the code in the image, as "+
			"elasticdl zoo build does", setting("yaml", c.YAML))
}

// UploadDir returns where code is uploaded to: on the job's first volume that is a claim and can be
// written to. It is "" if there is none. Jobs share it: what is in it is named by its checksum.
func (j *Job) UploadDir() string { return j.onClaim("elasticdl-code") }

// SetCode says that the job's code is an archive in [Job.UploadDir]. It returns the directory of
// the archive, and its file there.
func (j *Job) SetCode(sha256 string) (dir, file string) {
	dir, file = path.Join(j.UploadDir(), sha256), "code.tar"
	j.Program.Code, j.Program.CodeSHA256 = path.Join(dir, file), sha256
	return dir, file
}

// checkCode refuses code that workers of a cluster do not find, or that others could read who are
// not meant to.
func (j *Job) checkCode(p *problems) {
	g := &j.Program
	p.check(g.Workdir == "" || path.IsAbs(g.Workdir), setting("workdir", g.Workdir),
		"expected a directory in the image or on a volume, which starts with /")
	p.check(g.Workdir == "" || g.Code == "", setting("workdir", g.Workdir),
		"the processes start in code=%s; remove one of the two", g.Code)
	p.check((g.Code == "") == (g.CodeSHA256 == "") &&
		(g.Code == "" || path.IsAbs(g.Code) && sha256.MatchString(g.CodeSHA256)),
		fieldOf("code", g.Code),
		"expected the path of a .tar on a volume, and its checksum in codeSHA256, found %q there", g.CodeSHA256)
	if len(g.Command) > 0 && !j.AllowPlainSecrets {
		name := source.Credential(g.Command[0])
		p.check(name == "" || !strings.Contains(g.Command[0], "://"), theProgram(source.Shown(g.Command[0])),
			"its parameter %s is a secret that expires: the cluster would keep it in plain text, "+
				"and later workers could not fetch the program; "+
				"expected %v, code in the image (elasticdl zoo build), s3:// or gs://, which the "+
				"pods' ServiceAccount may read, a URL without a secret, or %v if it is none",
			name, setting("workdir"), setting("allow_plain_secrets"))
	}
}

// Script returns the path of the script that the command names. It is "" if it names none: a
// module, a command on PATH, a URL.
func (g *Program) Script() string {
	if g.Module || len(g.Command) == 0 || strings.Contains(g.Command[0], "://") {
		return ""
	}
	word := g.Command[0]
	switch {
	case !g.NoPython && IsPython(word):
		return scriptOf(g.Command[1:])
	case strings.HasSuffix(word, ".py"), strings.Contains(word, "/"):
		return word
	}
	return ""
}

// scriptOf finds the script among the arguments of a Python interpreter.
func scriptOf(args []string) string {
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "-X" || arg == "-W": // and a word
			i++
		case arg == "-" || arg == "-c" || arg == "-m":
			return ""
		case !strings.HasPrefix(arg, "-"):
			return arg
		}
	}
	return ""
}
