// Package rendezvous decides which workers form the ring, with which ranks, and whose state they take.
package rendezvous
