// Package hang runs programs that work and programs that hang: a job reports those that hang only.
package hang
