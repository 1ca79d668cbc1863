package rendezvous

// short reports whether all that are there wait for workers that are expected, as nobody is at work
// and nobody has a state.
func (m *model) short() bool {
	if m.policy.Gather == 0 || m.newest().Exists() || m.lacking() || m.over() || len(m.old) > 0 &&
		!m.broken && m.notified == 0 {
		return false
	}
	for _, p := range m.old {
		if !p.arrived() {
			return false
		}
	}
	there, enough := len(m.old)+m.room(), m.wanted()
	if n := len(m.eras); n > 0 {
		enough = min(enough, len(m.last().Members))
	}
	return there >= m.policy.Min && there < enough
}
