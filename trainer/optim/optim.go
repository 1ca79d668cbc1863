// Package optim updates parameters from gradients: SGD, Momentum, Nesterov,
// Adam, AMSGrad and Adagrad over flat float32 slices.
//
// Laws:
//
//  1. An update is element by element: applied to stretches of the parameters,
//     in any order, it gives the same bits as applied to all of them.
//  2. An optimizer has no state: what it remembers of a parameter lies in the
//     slots that the caller holds, and the count of updates is the caller's.
//  3. Nothing is allocated.
package optim
