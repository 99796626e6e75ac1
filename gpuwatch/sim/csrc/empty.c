/* Stands for CUDA libraries that TensorFlow only needs to find (cuFFT, cuSOLVER, cuSPARSE, cuRAND). A
 * call into one fails as it does with a library that is too old: the symbol is not there. */
const char gpuwatch_sim_empty[] = "no function of this library is simulated";
