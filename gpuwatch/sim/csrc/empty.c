/* Replaces CUDA libraries that TensorFlow only has to find (cuFFT, cuSOLVER, cuSPARSE, cuRAND). Calls fail as with
 * a library that is too old: the symbol is missing. */
const char gpuwatch_sim_empty[] = "no function of this library is simulated";
